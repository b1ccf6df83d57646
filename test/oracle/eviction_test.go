package oracle

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	op "monoplane.dev/api/policy/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/pod/eviction"
)

// refusal is what both say in the same words when a pod may not go.
func refusal(message string, code, retry int32, causes []string) string {
	return fmt.Sprintf("%d %s, retry after %d, because %q", code, message, retry, causes)
}

func ourRefusal(err error) string {
	var causes []string
	s := apierrors.From(err).Status()
	for _, c := range s.GetDetails().GetCauses() {
		causes = append(causes, c.GetReason()+": "+c.GetMessage())
	}
	return refusal(s.GetMessage(), s.GetCode(), s.GetDetails().GetRetryAfterSeconds(), causes)
}

// evicted is why a pod may not go, the budget that is written when it may, and whether it must not have changed
// meanwhile.
type evicted struct {
	Refusal string
	Written *policyv1.PodDisruptionBudget
	Expects bool
}

// Numbers below zero, which no budget can have, are not compared. A pod has a phase from its creation on.
//
// spec: DISR-2
func TestEvictionsAreJudgedAlike(t *testing.T) {
	r := random(t)
	now := longAgo
	many := map[string]metav1.Time{}
	for i := range 2001 {
		many[fmt.Sprint("gone-", i)] = metav1.NewTime(now)
	}
	kinds := map[string]int{}
	for range *count {
		p := minimal()
		p.ResourceVersion, p.Labels = "7", map[string]string{"app": pick(r, []string{"web", "db"})}
		p.Status.Phase = pick(r, []v1.PodPhase{"Running", "Running", "Running", "Running", "Unknown", "Pending",
			"Succeeded", "Failed"})
		p.Status.Conditions = readiness(r)
		if r.IntN(10) == 0 {
			p.DeletionTimestamp = ptr(metav1.NewTime(now))
		}
		var all []policyv1.PodDisruptionBudget
		var mine []*op.PodDisruptionBudget
		for i := range pick(r, []int{0, 1, 1, 1, 1, 2}) {
			b := countedBudget(r, now)
			b.Name = fmt.Sprint("b", i)
			if r.IntN(3) > 0 {
				b.Status.ObservedGeneration = b.Generation
			}
			switch r.IntN(40) {
			case 0:
				b.Status.DisruptedPods = many
			case 1:
				b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: "Huh"}}}
			}
			all, mine = append(all, *b), append(mine, ourBudget(t, b))
		}

		theirs := ask[evicted](t, "evictions", p, all, now)
		want := theirs.Refusal
		verdict, err := eviction.Judge(ourPod(t, p), mine, now)
		got := ""
		if err != nil {
			got = ourRefusal(err)
		}
		// There alone Kubernetes says one poddisruptionbudget for the resource, whose name is of many.
		want = strings.Replace(want, "poddisruptionbudget.policy", "poddisruptionbudgets.policy", 1)
		if got != want {
			t.Fatalf("Kubernetes %q\nMonoplane  %q\n%v\n%v", want, got, p, all)
		}
		if (theirs.Written == nil) != (verdict.Next == nil) {
			t.Fatalf("%v\n%v: Kubernetes writes %v, Monoplane %v", p, all, theirs.Written, verdict.Next)
		}
		kind := "refused"
		switch {
		case verdict.Next != nil:
			kind = "counted down"
			s := verdict.Next.GetStatus()
			from := verdict.Budget.GetStatus()
			w, g, same := sameStatus(t, theirs.Written.Status, s, now, from)
			if !same || verdict.Next.GetMetadata().GetName() != theirs.Written.Name {
				t.Fatalf("%v\nbecomes of %s %v for Kubernetes,\nof %s %v for Monoplane", from, theirs.Written.Name, w,
					verdict.Next.GetMetadata().GetName(), g)
			}
			if proto.Equal(from, s) {
				t.Fatalf("%v: counted down, it is the same", from)
			}
		case got == "" && verdict.Budget != nil:
			kind = "spared"
		case got == "":
			kind = "goes"
		}
		// A pod that goes because it is not ready must not have become so meanwhile.
		if kind == "spared" && !theirs.Expects {
			t.Fatalf("Kubernetes takes %v\n%v whatever has become of it, Monoplane does not", p, all)
		}
		kinds[kind]++
	}
	t.Log(kinds)
	for _, k := range []string{"refused", "counted down", "spared", "goes"} {
		if kinds[k] < *count/100 {
			t.Errorf("%s: only %d of %d", k, kinds[k], *count)
		}
	}
}
