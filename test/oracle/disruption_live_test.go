//go:build kubernetes

package oracle

import (
	"context"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"
	"k8s.io/klog/v2"
	kubedisruption "k8s.io/kubernetes/pkg/controller/disruption"
	clocktesting "k8s.io/utils/clock/testing"
)

// countTheirs counts the budget with a key, and writes its status if that is another.
//
//go:linkname countTheirs k8s.io/kubernetes/pkg/controller/disruption.(*DisruptionController).sync
func countTheirs(c *kubedisruption.DisruptionController, ctx context.Context, key string) error

// rememberTheirs returns which evicted pods a budget still remembers, and when one of them is overdue.
//
//go:linkname rememberTheirs k8s.io/kubernetes/pkg/controller/disruption.(*DisruptionController).buildDisruptedPodMap
func rememberTheirs(c *kubedisruption.DisruptionController, logger klog.Logger, pods []*v1.Pod,
	b *policyv1.PodDisruptionBudget, now time.Time) (map[string]metav1.Time, *time.Time)

// theirBudgets is Kubernetes' disruption controller, whose caches the test fills. It does not run by itself.
type theirBudgets struct {
	*kubedisruption.DisruptionController
	informers informers.SharedInformerFactory
	now       time.Time
	written   *policyv1.PodDisruptionBudget // the last one that it wrote
}

func newTheirBudgets(ctx context.Context, now time.Time) *theirBudgets {
	client := fake.NewClientset()
	c := &theirBudgets{informers: informers.NewSharedInformerFactory(client, 0), now: now}
	client.PrependReactor("update", "poddisruptionbudgets",
		func(a k8stesting.Action) (bool, runtime.Object, error) {
			c.written = a.(k8stesting.UpdateAction).GetObject().(*policyv1.PodDisruptionBudget)
			return true, c.written, nil
		})
	core, apps := c.informers.Core().V1(), c.informers.Apps().V1()
	c.DisruptionController = kubedisruption.NewDisruptionControllerInternal(ctx, core.Pods(),
		c.informers.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(), apps.ReplicaSets(),
		apps.Deployments(), apps.StatefulSets(), client, nil, nil, nil, clocktesting.NewFakeClock(now), time.Minute)
	return c
}

// count returns the status of a budget once it is counted.
func (c *theirBudgets) count(
	t testing.TB, b *policyv1.PodDisruptionBudget, pods []*v1.Pod, sets []*apps1.ReplicaSet,
) policyv1.PodDisruptionBudgetStatus {
	c.written = nil
	var all, owners []any
	for _, p := range pods {
		all = append(all, p)
	}
	for _, s := range sets {
		owners = append(owners, s)
	}
	fill := func(into interface{ Replace([]any, string) error }, objects []any) {
		if err := into.Replace(objects, ""); err != nil {
			t.Fatal(err)
		}
	}
	fill(c.informers.Core().V1().Pods().Informer().GetIndexer(), all)
	fill(c.informers.Apps().V1().ReplicaSets().Informer().GetIndexer(), owners)
	fill(c.informers.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer(), []any{b})
	// Its log is of no interest.
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	if err := countTheirs(c.DisruptionController, ctx, b.Namespace+"/"+b.Name); err != nil {
		t.Fatal(err)
	}
	if c.written != nil {
		return c.written.Status
	}
	// What was right before is not written again. A message and a generation that the condition does not have from the
	// controller itself stay there then; Monoplane has it say what it means.
	same := b.DeepCopy()
	pdbhelper.UpdateDisruptionAllowedCondition(same)
	return same.Status
}

// theirCounter is one for all questions of the tests: to make one takes long.
var theirCounter *theirBudgets

func theirCountedBudget(
	t testing.TB, b *policyv1.PodDisruptionBudget, pods []*v1.Pod, sets []*apps1.ReplicaSet, selected []*v1.Pod,
	now time.Time,
) (out countedAnswer) {
	if theirCounter == nil {
		theirCounter = newTheirBudgets(context.Background(), now)
	}
	status := theirCounter.count(t, b, pods, sets)
	out.Status = *status.DeepCopy()
	out.Written = theirCounter.written != nil
	began(&out.Status, now)
	var end *time.Time
	out.Remembered, end = rememberTheirs(theirCounter.DisruptionController, klog.Logger{}, selected, b, now)
	if end != nil {
		out.End = *end
	}
	return out
}

// began has conditions that have begun with a status begin now: Kubernetes' own code takes that time from the clock on
// the wall.
func began(s *policyv1.PodDisruptionBudgetStatus, now time.Time) {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.LastTransitionTime.After(now) {
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
}
