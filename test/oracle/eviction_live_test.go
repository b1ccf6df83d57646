//go:build kubernetes

package oracle

import (
	"context"
	"errors"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

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

func theirEviction(t testing.TB, p *v1.Pod, all []policyv1.PodDisruptionBudget, now time.Time) (out evicted) {
	pod, budgets := &onePod{pod: internal(t, p, &core.Pod{})}, &someBudgets{all: all}
	ctx := genericapirequest.WithNamespace(context.Background(), p.Namespace)
	answer, err := evictionStorage(pod, budgets).Create(ctx, p.Name,
		&policy.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}},
		rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if status := (upstreamerrors.APIStatus)(nil); errors.As(err, &status) {
		out.Refusal = theirRefusal(ptr(status.Status()))
	} else if err != nil {
		t.Fatal(err)
	} else if s := answer.(*metav1.Status); s.Status != metav1.StatusSuccess {
		out.Refusal = theirRefusal(s)
	}
	if pod.deleted != (out.Refusal == "") {
		t.Fatalf("%q, and yet deleted is %v", out.Refusal, pod.deleted)
	}
	out.Written, out.Expects = budgets.written, pod.revision != nil
	if out.Written != nil {
		out.Written = out.Written.DeepCopy()
		began(&out.Written.Status, now)
		if _, ok := out.Written.Status.DisruptedPods[p.Name]; ok { // it is the time of the clock on the wall
			out.Written.Status.DisruptedPods[p.Name] = metav1.NewTime(now)
		}
	}
	return out
}
