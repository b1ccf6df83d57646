package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler"
)

// The pods of a workload are spread over zones when they say nothing themselves; others are not. spec: SPREAD-4
func TestWorkloadsAreSpreadByDefault(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		for i := range 6 {
			n := newNode(fmt.Sprint("n", i), "cpu=64", "pods=110")
			n.Metadata.Labels = map[string]string{"kubernetes.io/hostname": fmt.Sprint("n", i),
				"topology.kubernetes.io/zone": fmt.Sprint("z", min(i, 1))} // z0 has one node, z1 the others
			w.addNode(n)
		}
		rs, err := w.c.ReplicaSets.Create(w.Context(), &appsv1rpc.CreateReplicaSetRequest{Object: &appsv1.ReplicaSet{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web"},
			Spec: &appsv1.ReplicaSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Template: &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
					Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}}},
			},
		}})
		w.must(nil, err)
		sts, err := w.c.StatefulSets.Create(w.Context(), &appsv1rpc.CreateStatefulSetRequest{Object: &appsv1.StatefulSet{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "db"},
			Spec: &appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
				Template: &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
					Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}}},
			},
		}})
		w.must(nil, err)
		_, err = w.c.Services.Create(w.Context(), &corev1rpc.CreateServiceRequest{Object: &corev1.Service{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "shop"},
			Spec:     &corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "shop"}},
		}})
		w.must(nil, err)
		synctest.Wait()
		inSmallZone := func(name string, owners ...*metav1.OwnerReference) (n int) {
			for i := range 12 {
				p := newPod(fmt.Sprint(name, i), "cpu=1m")
				p.Metadata.Labels = map[string]string{"app": name}
				p.Metadata.OwnerReferences = owners
				_, err := w.c.Pods.Create(context.Background(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p})
				w.must(nil, err)
				synctest.Wait()
				got, err := w.c.Pods.Get(context.Background(), &metav1.GetRequest{Namespace: "ns", Name: p.Metadata.Name})
				w.must(nil, err)
				if got.GetSpec().GetNodeName() == "n0" {
					n++
				}
			}
			return n
		}
		alone := inSmallZone("alone")
		of := inSmallZone("web", &metav1.OwnerReference{ApiVersion: "apps/v1", Kind: "ReplicaSet", Name: "web",
			Uid: rs.GetMetadata().GetUid(), Controller: proto.Bool(true)})
		ofStateful := inSmallZone("db", &metav1.OwnerReference{ApiVersion: "apps/v1", Kind: "StatefulSet", Name: "db",
			Uid: sts.GetMetadata().GetUid(), Controller: proto.Bool(true)})
		ofService := inSmallZone("shop")
		if alone > 3 || of < 4 || ofStateful < 4 || ofService < 4 {
			w.Errorf("the zone with one node has %d of 12 pods that belong to nothing, %d of 12 of a ReplicaSet, "+
				"%d of 12 of a StatefulSet, %d of 12 of a Service", alone, of, ofStateful, ofService)
		}
	})
}
