package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ourerrors "monoplane.dev/apierrors"
	ourscheduling "monoplane.dev/apiserver/kinds/scheduling"
	"monoplane.dev/apiserver/kinds/scheduling/priority"

	os "monoplane.dev/api/scheduling/v1"
)

// spec: PRIO-1, PRIO-4
func TestPriorityClassesAreJudgedAlike(t *testing.T) {
	base := func(r *rand.Rand) *schedulingv1.PriorityClass {
		c := &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: pick(r, []string{"high", "system-node-critical", "system-cluster-critical",
				"system-x", "System"})},
			Value:       pick(r, []int32{0, -5, 1_000_000_000, 1_000_000_001, 2_000_000_000, 2_000_001_000}),
			Description: "d", GlobalDefault: r.IntN(3) == 0, PreemptionPolicy: ptr(pick(r,
				[]v1.PreemptionPolicy{"Never", "PreemptLowerPriority"})),
		}
		c.ResourceVersion = "1"
		return c
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := base(r)
		k := old.DeepCopy()
		what := alter(r, k, r.IntN(4), nil)
		theirs := ask[verdict](t, "priorityclasses", k, old)
		c, err := ours(k, &os.PriorityClass{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &os.PriorityClass{})
		if err != nil {
			t.Fatal(err)
		}
		ourscheduling.DefaultPriorityClass(c)
		ourscheduling.DefaultPriorityClass(o)
		what = append(what, fmt.Sprintf("%s %d", k.Name, k.Value))
		if report(t, append(what, "create"), compare(theirs.Created,
			ourFaults(ourscheduling.ValidatePriorityClass(c)))) ||
			report(t, append(what, "update"),
				onlyMeta(compare(theirs.Updated,
					ourFaults(ourscheduling.ValidatePriorityClassUpdate(c, o))))) {
			bad++
		}
	}
}

// spec: PRIO-2, PRIO-4
func TestPodsGetTheSamePriority(t *testing.T) {
	r := random(t)
	for range *count {
		classes := randomClasses(r)
		k := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}}
		k.Spec.PriorityClassName = pick(r, []string{"", "", "a", "b", "c"})
		if r.IntN(3) == 0 {
			k.Spec.Priority = ptr(pick(r, []int32{0, 1, 2, 3}))
		}
		if r.IntN(3) == 0 {
			k.Spec.PreemptionPolicy = ptr(pick(r, []v1.PreemptionPolicy{"Never", "PreemptLowerPriority"}))
		}
		want, got := ask[string](t, "priorities", k, classes), ourPriority(t, k, classes)
		if got != want {
			t.Fatalf("classes %v\npod %v\nKubernetes %s\nMonoplane  %s", classes, k.Spec, want, got)
		}
	}
}

// randomClasses are up to three classes, one of which may be the default.
func randomClasses(r *rand.Rand) []*schedulingv1.PriorityClass {
	var out []*schedulingv1.PriorityClass
	chosen := r.IntN(5)
	for i, name := range []string{"a", "b", "c"} {
		if r.IntN(2) == 0 {
			out = append(out, &schedulingv1.PriorityClass{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Value: r.Int32N(4), GlobalDefault: i == chosen,
				PreemptionPolicy: ptr(pick(r, []v1.PreemptionPolicy{"Never", "PreemptLowerPriority"})),
			})
		}
	}
	return out
}

// ourPriority shows what Monoplane makes of it, which differs from the server in where the class is looked up.
func ourPriority(t *testing.T, k *v1.Pod, classes []*schedulingv1.PriorityClass) string {
	t.Helper()
	p := ourPod(t, k)
	var class *os.PriorityClass
	for _, c := range classes {
		if c.Name == k.Spec.PriorityClassName || k.Spec.PriorityClassName == "" && c.GlobalDefault {
			var err error
			if class, err = ours(c, &os.PriorityClass{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := priority.Set(p, class)
	if class == nil && k.Spec.PriorityClassName != "" {
		err = priority.Unknown(ourPod(t, k))
	}
	if err != nil {
		return fmt.Sprint(ourerrors.From(err).Reason(), " ", err)
	}
	return fmt.Sprint(p.Spec.PriorityClassName, " ", p.Spec.GetPriority(), " ", p.Spec.GetPreemptionPolicy())
}
