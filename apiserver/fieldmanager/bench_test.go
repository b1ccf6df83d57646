package fieldmanager_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/fieldmanager"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func benchPod() *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web", Uid: "u",
			Labels: map[string]string{"app": "bench", "tier": "front"}},
		Spec: &corev1.PodSpec{
			RestartPolicy: "Always", DnsPolicy: "ClusterFirst", SchedulerName: "default-scheduler",
			SecurityContext: &corev1.PodSecurityContext{}, TerminationGracePeriodSeconds: proto.Int64(30),
			Containers: []*corev1.Container{{Name: "main", Image: "host", Command: []string{"sleep", "1"},
				ImagePullPolicy: "Always", Env: []*corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}},
		},
		Status: &corev1.PodStatus{Phase: "Pending"},
	}
}

// BenchmarkUpdate measures what tracking adds to a create, and to a status that is written again and again.
func BenchmarkUpdate(b *testing.B) {
	k := fieldmanager.New(corev1.PodKind)
	w := fieldmanager.Write{Manager: "bench", APIVersion: "v1", Time: &metav1.Time{Seconds: 1}, Skip: []string{"status"}}
	p := benchPod()
	b.Run("create", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			k.Update(nil, p, nil, w)
		}
	})
	b.Run("status", func(b *testing.B) {
		told := func(ready string) *corev1.Pod {
			next := p.Shallow()
			next.Status = &corev1.PodStatus{Phase: "Running", PodIP: "10.0.0.1", Conditions: []*corev1.PodCondition{
				{Type: "Ready", Status: ready}, {Type: "Initialized", Status: "True"}, {Type: "ContainersReady", Status: ready},
			}}
			return next
		}
		entries := k.Update(nil, p, nil, w)
		s := fieldmanager.Write{Manager: "kubelet", APIVersion: "v1", Subresource: "status", Time: &metav1.Time{Seconds: 2}}
		was, is := told("False"), told("True")
		entries = k.Update(p, was, entries, s)
		b.ReportAllocs()
		for b.Loop() {
			entries = k.Update(was, is, entries, s)
			was, is = is, was
		}
	})
}
