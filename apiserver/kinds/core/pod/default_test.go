package pod_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// asCreated does with a pod what creation does.
func asCreated(p *corev1.Pod) {
	pod.Default(p)
	pod.CompleteNew(p)
}

func TestNewPod(t *testing.T) {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
		Status:   &corev1.PodStatus{Phase: "Running", PodIP: "10.0.0.1"},
	}
	asCreated(p)
	want := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p", Generation: 1},
		Spec: &corev1.PodSpec{
			Containers: []*corev1.Container{{
				Name: "c", Image: "host", ImagePullPolicy: "Always", TerminationMessagePath: "/dev/termination-log",
				TerminationMessagePolicy: "File", Resources: &corev1.ResourceRequirements{},
			}},
			RestartPolicy: "Always", TerminationGracePeriodSeconds: ptr(int64(30)), DnsPolicy: "ClusterFirst",
			ServiceAccountName: "default", ServiceAccount: "default", SecurityContext: &corev1.PodSecurityContext{},
			SchedulerName: "default-scheduler", EnableServiceLinks: ptr(true),
			Tolerations: []*corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute",
					TolerationSeconds: ptr(int64(300))},
			},
		},
		Status: &corev1.PodStatus{Phase: "Pending", QosClass: "BestEffort"},
	}
	if !proto.Equal(p, want) {
		t.Errorf("got  %v\nwant %v", p, want)
	}
	again := proto.CloneOf(p)
	asCreated(again)
	if !proto.Equal(p, again) {
		t.Errorf("a second time changed it to %v", again)
	}
}

// spec: NODE-3
func TestOwnTolerationsStay(t *testing.T) {
	for _, c := range []struct {
		have []*corev1.Toleration
		want int
	}{
		{nil, 2},
		{[]*corev1.Toleration{{Operator: "Exists"}}, 1},
		{[]*corev1.Toleration{{Operator: "Exists", Effect: "NoExecute"}}, 1},
		{[]*corev1.Toleration{{Operator: "Exists", Effect: "NoSchedule"}}, 3},
		{[]*corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute",
			TolerationSeconds: ptr(int64(0))}, nil}, 2},
		{[]*corev1.Toleration{{Key: "other", Operator: "Exists"}}, 3},
	} {
		p := &corev1.Pod{Spec: &corev1.PodSpec{Tolerations: c.have}}
		asCreated(p)
		if len(p.Spec.Tolerations) != c.want {
			t.Errorf("%v became %v", c.have, p.Spec.Tolerations)
		}
	}
}

// spec: CTR-6
func TestPullPolicyFollowsTheTag(t *testing.T) {
	digest := "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for image, want := range map[string]string{
		"host": "Always", "a:latest": "Always", "a:1": "IfNotPresent", "r.io:5000/a/b": "Always",
		"r.io:5000/a:1": "IfNotPresent",
		"localhost/a":   "Always", "a" + digest: "IfNotPresent", "a:latest" + digest: "Always", "": "IfNotPresent",
		"A": "IfNotPresent", "a b": "IfNotPresent",
	} {
		p := &corev1.Pod{Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Image: image}}}}
		pod.Default(p)
		if got := p.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}

func TestResources(t *testing.T) {
	p := &corev1.Pod{Spec: &corev1.PodSpec{
		Containers: []*corev1.Container{
			{Resources: &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", "1000m", "memory", "0.5"),
				Requests: kindtest.Amounts("cpu", "0.0001")}},
		},
		InitContainers: []*corev1.Container{{RestartPolicy: ptr("Always"),
			Resources: &corev1.ResourceRequirements{Requests: kindtest.Amounts("cpu", "1")}}},
		Resources: &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", "4", "memory", "1Gi")},
	}}
	pod.Default(p)
	r := p.Spec.Containers[0].Resources
	if got := kindtest.Show(r.Limits) +
		kindtest.Show(r.Requests); got != "map[cpu:1 memory:500m]map[cpu:1m memory:500m]" {
		t.Errorf("container: %s", got)
	}
	if r.Limits["memory"] == r.Requests["memory"] {
		t.Error("request and limit share a quantity")
	}
	if got := kindtest.Show(p.Spec.Resources.Requests); got != "map[cpu:1001m memory:500m]" {
		t.Errorf("pod: %s", got)
	}
}

func TestPodDetails(t *testing.T) {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Labels: map[string]string{"v": "1"}, CreationTimestamp: &metav1.Time{Seconds: 7}},
		Spec: &corev1.PodSpec{
			HostNetwork: true, TerminationGracePeriodSeconds: ptr(int64(-5)), ServiceAccount: "old",
			SchedulingGates: []*corev1.PodSchedulingGate{{Name: "g"}},
			Containers: []*corev1.Container{{
				Ports:         []*corev1.ContainerPort{{ContainerPort: 80}, nil},
				Env:           []*corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}}}, nil},
				LivenessProbe: &corev1.Probe{Handler: &corev1.ProbeHandler{HttpGet: &corev1.HTTPGetAction{}}},
				Lifecycle:     &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HttpGet: &corev1.HTTPGetAction{}}},
			}, nil},
			Volumes: []*corev1.Volume{
				{Name: "a"}, nil, {Name: "b", VolumeSource: &corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
				{Name: "c", VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []*corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}, nil}}}},
			},
			TopologySpreadConstraints: []*corev1.TopologySpreadConstraint{{MatchLabelKeys: []string{"v", "w"},
				LabelSelector: &metav1.LabelSelector{}}, nil},
		},
	}
	asCreated(p)
	s := p.Spec
	c := s.Containers[0]
	for _, check := range []struct {
		what      string
		got, want any
	}{
		{"negative grace", *s.TerminationGracePeriodSeconds, int64(1)},
		{"service account by its old name", s.ServiceAccountName, "old"},
		{"host port", c.Ports[0].HostPort, int32(80)},
		{"protocol", c.Ports[0].Protocol, "TCP"},
		{"field reference", c.Env[0].ValueFrom.FieldRef.ApiVersion, "v1"},
		{"probe", fmt.Sprint(c.LivenessProbe.TimeoutSeconds, c.LivenessProbe.PeriodSeconds, c.LivenessProbe.SuccessThreshold,
			c.LivenessProbe.FailureThreshold), "1 10 1 3"},
		{"probe path", c.LivenessProbe.Handler.HttpGet.Path + c.LivenessProbe.Handler.HttpGet.Scheme, "/HTTP"},
		{"hook path", c.Lifecycle.PreStop.HttpGet.Path, "/"},
		{"volume without a source", s.Volumes[0].VolumeSource.EmptyDir != nil, true},
		{"mode", *s.Volumes[2].VolumeSource.ConfigMap.DefaultMode, int32(0o644)},
		{"token", *s.Volumes[3].VolumeSource.Projected.Sources[0].ServiceAccountToken.ExpirationSeconds, int64(3600)},
		{"label keys", fmt.Sprint(len(s.TopologySpreadConstraints[0].LabelSelector.MatchExpressions)), "1"},
		{"gated", p.Status.Conditions[0].Reason, "SchedulingGated"},
		{"gated since", p.Status.Conditions[0].LastTransitionTime.Seconds, int64(7)},
	} {
		if check.got != check.want {
			t.Errorf("%s: %v, want %v", check.what, check.got, check.want)
		}
	}
}
