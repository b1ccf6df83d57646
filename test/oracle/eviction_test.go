package oracle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	upstreamerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/policy"
	"k8s.io/kubernetes/pkg/registry/core/pod/storage"

	op "monoplane.dev/api/policy/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/pod/eviction"
)

// evictionStorage is what serves subresource eviction.
//
//go:linkname evictionStorage k8s.io/kubernetes/pkg/registry/core/pod/storage.newEvictionStorage
func evictionStorage(store rest.StandardStorage, budgets policyclient.PodDisruptionBudgetsGetter) *storage.EvictionREST

// onePod is a store with one pod. What is done to it is forgotten, but for the revision that a deletion expects.
type onePod struct {
	rest.StandardStorage
	pod      *core.Pod
	deleted  bool
	revision *string
}

func (s *onePod) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return s.pod, nil
}

func (s *onePod) Update(
	ctx context.Context, _ string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	_ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	o, err := info.UpdatedObject(ctx, s.pod)
	return o, false, err
}

func (s *onePod) Delete(
	_ context.Context, _ string, _ rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	s.deleted = true
	if options.Preconditions != nil {
		s.revision = options.Preconditions.ResourceVersion
	}
	return s.pod, true, nil
}

// someBudgets are those of a namespace. What is written is kept aside.
type someBudgets struct {
	policyclient.PodDisruptionBudgetInterface
	all     []policyv1.PodDisruptionBudget
	written *policyv1.PodDisruptionBudget
}

func (b *someBudgets) PodDisruptionBudgets(string) policyclient.PodDisruptionBudgetInterface {
	return b
}

func (b *someBudgets) List(context.Context, metav1.ListOptions) (*policyv1.PodDisruptionBudgetList, error) {
	l := &policyv1.PodDisruptionBudgetList{}
	for _, one := range b.all {
		l.Items = append(l.Items, *one.DeepCopy())
	}
	return l, nil
}

func (b *someBudgets) UpdateStatus(
	_ context.Context, now *policyv1.PodDisruptionBudget, _ metav1.UpdateOptions,
) (*policyv1.PodDisruptionBudget, error) {
	b.written = now
	return now, nil
}

// refusal is what both say in the same words when a pod may not go.
func refusal(message string, code, retry int32, causes []string) string {
	return fmt.Sprintf("%d %s, retry after %d, because %q", code, message, retry, causes)
}

func theirRefusal(s *metav1.Status) string {
	var causes []string
	retry := int32(0)
	if s.Details != nil {
		retry = s.Details.RetryAfterSeconds
		for _, c := range s.Details.Causes {
			causes = append(causes, string(c.Type)+": "+c.Message)
		}
	}
	return refusal(s.Message, s.Code, retry, causes)
}

func ourRefusal(err error) string {
	var causes []string
	s := apierrors.From(err).Status()
	for _, c := range s.GetDetails().GetCauses() {
		causes = append(causes, c.GetReason()+": "+c.GetMessage())
	}
	return refusal(s.GetMessage(), s.GetCode(), s.GetDetails().GetRetryAfterSeconds(), causes)
}

// Numbers below zero, which no budget can have, are not compared. A pod has a phase from its creation on.
//
// spec: DISR-2
func TestEvictionsAreJudgedAlike(t *testing.T) {
	r := random(t)
	now := time.Unix(time.Now().Unix()-1_000_000, 0)
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
		all := &someBudgets{}
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
			all.all, mine = append(all.all, *b), append(mine, ourBudget(t, b))
		}

		pod := &onePod{pod: internal(t, p, &core.Pod{})}
		ctx := genericapirequest.WithNamespace(context.Background(), p.Namespace)
		answer, err := evictionStorage(pod, all).Create(ctx, p.Name,
			&policy.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}},
			rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		want := ""
		if status := (upstreamerrors.APIStatus)(nil); errors.As(err, &status) {
			want = theirRefusal(ptr(status.Status()))
		} else if err != nil {
			t.Fatal(err)
		} else if s := answer.(*metav1.Status); s.Status != metav1.StatusSuccess {
			want = theirRefusal(s)
		}
		if pod.deleted != (want == "") {
			t.Fatalf("%q, and yet deleted is %v", want, pod.deleted)
		}

		verdict, err := eviction.Judge(ourPod(t, p), mine, now)
		got := ""
		if err != nil {
			got = ourRefusal(err)
		}
		// There alone Kubernetes says one poddisruptionbudget for the resource, whose name is of many.
		want = strings.Replace(want, "poddisruptionbudget.policy", "poddisruptionbudgets.policy", 1)
		if got != want {
			t.Fatalf("Kubernetes %q\nMonoplane  %q\n%v\n%v", want, got, p, all.all)
		}
		if (all.written == nil) != (verdict.Next == nil) {
			t.Fatalf("%v\n%v: Kubernetes writes %v, Monoplane %v", p, all.all, all.written, verdict.Next)
		}
		kind := "refused"
		switch {
		case verdict.Next != nil:
			kind = "counted down"
			s := verdict.Next.GetStatus()
			from := verdict.Budget.GetStatus()
			theirs := all.written.Status
			if _, ok := theirs.DisruptedPods[p.Name]; ok { // it is the time of the clock on the wall
				theirs.DisruptedPods[p.Name] = metav1.NewTime(now)
			}
			if w, g, same := sameStatus(t, theirs, s, now, from); !same || verdict.Next.GetMetadata().GetName() !=
				all.written.Name {
				t.Fatalf("%v\nbecomes of %s %v for Kubernetes,\nof %s %v for Monoplane", from, all.written.Name, w,
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
		if kind == "spared" && pod.revision == nil {
			t.Fatalf("Kubernetes takes %v\n%v whatever has become of it, Monoplane does not", p, all.all)
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
