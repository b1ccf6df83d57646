package oracle

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/node"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"

	on "monoplane.dev/api/node/v1"
	ournode "monoplane.dev/apiserver/kinds/node"
)

func runtimeClass() *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "vm", ResourceVersion: "1"}, Handler: "kata",
		Overhead: &nodev1.Overhead{PodFixed: amounts("cpu", "250m", "memory", "64Mi")},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []v1.Toleration{
			{Key: "vm", Operator: "Exists", Effect: "NoSchedule"}, {Key: "a", Value: "b", Operator: "Equal"},
		}},
	}
}

func TestRuntimeClassesAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := runtimeClass(), runtimeClass()
		what := alter(r, k, 1+r.IntN(3), nil)
		now, was := internal(t, k, &node.RuntimeClass{}), internal(t, old, &node.RuntimeClass{})
		o, err := ours(k, &on.RuntimeClass{})
		if err != nil {
			t.Fatal(err)
		}
		before, err := ours(old, &on.RuntimeClass{})
		if err != nil {
			t.Fatal(err)
		}
		ournode.DefaultRuntimeClass(o)
		ournode.DefaultRuntimeClass(before)
		created := compare(theirFaults(runtimeclass.Strategy.Validate(context.Background(), now)), ourFaults(ournode.ValidateRuntimeClass(o)))
		updated := compare(theirFaults(runtimeclass.Strategy.ValidateUpdate(context.Background(), now, was)), ourFaults(ournode.ValidateRuntimeClassUpdate(o, before)))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), onlyMeta(updated)) {
			bad++
		}
	}
}
