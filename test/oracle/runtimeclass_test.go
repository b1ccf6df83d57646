package oracle

import (
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "monoplane.dev/api/core/v1"
	on "monoplane.dev/api/node/v1"
	"monoplane.dev/apiserver/kinds/core/pod"
	ournode "monoplane.dev/apiserver/kinds/node"
	"monoplane.dev/apiserver/validation"
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
		if k.Overhead != nil { // Monoplane rounds the amounts of classes as both sides round those of pods.
			for name, q := range k.Overhead.PodFixed {
				q.RoundUp(resource.Milli)
				k.Overhead.PodFixed[name] = q
			}
		}
		theirs := ask[verdict](t, "runtimeclasses", k, old)
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
		created := compare(theirs.Created,
			ourFaults(ournode.ValidateRuntimeClass(o)))
		updated := compare(theirs.Updated,
			ourFaults(ournode.ValidateRuntimeClassUpdate(o, before)))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), onlyMeta(updated)) {
			bad++
		}
	}
}

// A pod gets of its class, or is refused because of it, what Kubernetes' admission gives it. spec: LIFE-8
func TestRuntimeClassesGivePodsTheSame(t *testing.T) {
	r := random(t)
	given, refused := 0, 0
	for range min(*count, 1000) {
		class := runtimeClass()
		what := alter(r, class, r.IntN(3), func(path string) bool { return !strings.Contains(path, "Name") })
		if r.IntN(3) == 0 && class.Scheduling != nil {
			class.Scheduling.Tolerations = append(class.Scheduling.Tolerations, tolerationsOf(r)...)
		}
		p := minimal()
		p.Spec.RuntimeClassName = ptr("vm")
		p.Spec.NodeSelector = pick(r, []map[string]string{nil, {"a": "b"}, {"vm": "yes"}, {"vm": "no"}, {"": "1"}})
		p.Spec.Tolerations = tolerationsOf(r)
		if r.IntN(3) == 0 {
			p.Spec.Overhead = amounts("cpu", pick(r, []string{"250m", "0.25", "1"}), "memory", "64Mi")
		}
		admission := ask[admitted](t, "runtimeclass-admissions", class, p)
		mine, convertErr := ours(p, &corev1.Pod{})
		if convertErr != nil {
			t.Fatal(convertErr)
		}
		c, convertErr := ours(class, &on.RuntimeClass{})
		if convertErr != nil {
			t.Fatal(convertErr)
		}
		myErr := pod.ApplyRuntimeClass(mine, c)
		if (admission.Refused == "") != (myErr == nil) {
			t.Fatalf("after %v: %q by Kubernetes, %v by Monoplane\n%v\n%v", what, admission.Refused, myErr, class, p.Spec)
		}
		if myErr != nil {
			refused++
			continue
		}
		given++
		want := ourPod(t, admission.Pod).Spec
		for _, part := range []func(*corev1.PodSpec) *corev1.PodSpec{
			func(s *corev1.PodSpec) *corev1.PodSpec { return &corev1.PodSpec{NodeSelector: s.NodeSelector} },
			func(s *corev1.PodSpec) *corev1.PodSpec { return &corev1.PodSpec{Tolerations: s.Tolerations} },
			func(s *corev1.PodSpec) *corev1.PodSpec { return &corev1.PodSpec{Overhead: s.Overhead} },
		} {
			if theirs, my := part(want), part(mine.Spec); !validation.Equal(theirs, my) {
				t.Fatalf("after %v: %v by Kubernetes, %v by Monoplane\n%v\n%v", what, theirs, my, class, p.Spec)
			}
		}
	}
	if given == 0 || refused == 0 {
		t.Errorf("%d given, %d refused", given, refused)
	}
}

func tolerationsOf(r *rand.Rand) []v1.Toleration {
	var list []v1.Toleration
	for range r.IntN(4) {
		x := v1.Toleration{
			Key: pick(r, []string{"", "vm", "a"}), Operator: pick(r, []v1.TolerationOperator{"", "Equal", "Exists"}),
			Value: pick(r, []string{"", "b"}), Effect: pick(r, []v1.TaintEffect{"", "NoSchedule", "NoExecute"}),
		}
		if x.Effect == "NoExecute" && r.IntN(2) == 0 {
			x.TolerationSeconds = ptr(int64(r.IntN(3)))
		}
		list = append(list, x)
	}
	return list
}
