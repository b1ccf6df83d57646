package apiserver_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	policyv1rpc "monoplane.dev/api/policy/v1/rpc"
)

// runs creates a pod with label app=web on node n1, which its agent reports as running, and as ready or not.
func (c *cluster) runs(name string, ready bool) *corev1.Pod {
	c.t.Helper()
	p := newPod(name)
	p.Metadata.Labels = map[string]string{"app": "web"}
	p = c.createPod(p)
	if err := c.bind(p, "n1"); err != nil {
		c.t.Fatal(err)
	}
	return c.ready(p, ready)
}

// ready reports a pod as running, and as ready or not.
func (c *cluster) ready(p *corev1.Pod, ready bool) *corev1.Pod {
	c.t.Helper()
	return must(c.report(c.agent("n1"), p, ready))(c.t)
}

func (c *cluster) report(by client, p *corev1.Pod, ready bool) (*corev1.Pod, error) {
	status := "False"
	if ready {
		status = "True"
	}
	return by.Pods.UpdateStatus(ctx(c.t), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, Uid: p.Metadata.Uid},
		Status: &corev1.PodStatus{Phase: "Running", Conditions: []*corev1.PodCondition{
			{Type: "Ready", Status: status, LastTransitionTime: value.Time(c.clock.Now())},
		}},
	}})
}

// budget creates a budget for the pods with app=web whose controller has counted what is given.
func (c *cluster) budget(name string, healthy, desired int32) *policyv1.PodDisruptionBudget {
	c.t.Helper()
	b := must(c.admin().PodDisruptionBudgets.Create(ctx(c.t), &policyv1rpc.CreatePodDisruptionBudgetRequest{
		Object: &policyv1.PodDisruptionBudget{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec: &policyv1.PodDisruptionBudgetSpec{
				MinAvailable: &metav1.IntOrString{IntVal: desired},
				Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			},
		},
	}))(c.t)
	return c.counted(b, healthy, desired)
}

// counted writes the status of a budget as its controller does.
func (c *cluster) counted(b *policyv1.PodDisruptionBudget, healthy, desired int32) *policyv1.PodDisruptionBudget {
	c.t.Helper()
	next := clone(b)
	next.Status = &policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Metadata.Generation, CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: healthy,
		DisruptionsAllowed: max(0, healthy-desired),
	}
	disruption.SetAllowed(next.Status, c.clock.Now())
	return must(c.admin().PodDisruptionBudgets.UpdateStatus(ctx(c.t),
		&policyv1rpc.UpdatePodDisruptionBudgetRequest{Object: next}))(c.t)
}

func (c *cluster) getBudget(name string) *policyv1.PodDisruptionBudget {
	c.t.Helper()
	return must(c.admin().PodDisruptionBudgets.Get(ctx(c.t), &metav1.GetRequest{Namespace: "default", Name: name}))(c.t)
}

// evict asks somebody's server for an eviction.
func evict(
	ctx context.Context, by client, name string, opts *metav1.DeleteOptions, dryRun ...string,
) (*metav1.Status, error) {
	return by.Pods.Evict(ctx, &corev1rpc.EvictPodRequest{
		Namespace: "default", Name: name, DryRun: dryRun,
		Object: &policyv1.Eviction{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}, DeleteOptions: opts},
	})
}

func target(p *corev1.Pod) *corev1.PodCondition {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == disruption.Target {
			return c
		}
	}
	return nil
}

// An eviction is a graceful deletion with a reason, and one less that the budget allows. spec: DISR-2, DISR-4, DISR-5
func TestEviction(t *testing.T) {
	c := start(t)
	c.register("n1")
	before := c.runs("web", true)
	c.budget("b", 3, 1)
	revision := c.getBudget("b").Metadata.ResourceVersion

	// A dry run answers as if it had happened.
	status := must(evict(ctx(t), c.admin(), "web", nil, "All"))(t)
	if p := must(c.getPod("web"))(t); status.GetStatus() != "Success" || !proto.Equal(p, before) ||
		c.getBudget("b").Metadata.ResourceVersion != revision {
		t.Errorf("dry run: %v, %v", status, p)
	}
	must(evict(ctx(t), c.admin(), "web", &metav1.DeleteOptions{DryRun: []string{"All"}}))(t)

	status = must(evict(ctx(t), c.admin(), "web", nil))(t)
	if status.GetStatus() != "Success" || status.GetCode() != 201 {
		t.Errorf("answer %v", status)
	}
	p, b := must(c.getPod("web"))(t), c.getBudget("b")
	if p.Metadata.GetDeletionGracePeriodSeconds() != 30 || p.Metadata.Generation != before.Metadata.Generation+1 {
		t.Errorf("not a graceful deletion: %v", p.Metadata)
	}
	d := target(p)
	if d.GetStatus() != "True" || d.GetReason() != "EvictionByEvictionAPI" || d.GetMessage() == "" ||
		d.GetLastTransitionTime() == nil {
		t.Errorf("condition %v", d)
	}
	if b.Metadata.ResourceVersion != p.Metadata.ResourceVersion {
		t.Errorf("pod %s and budget %s were not written at once", p.Metadata.ResourceVersion, b.Metadata.ResourceVersion)
	}
	if s := b.Status; s.DisruptionsAllowed != 1 || s.DisruptedPods["web"] == nil || s.CurrentHealthy != 3 {
		t.Errorf("budget: %v", s)
	}

	// It is on its way: another one changes nothing, and needs no budget. A shorter grace is one.
	must(evict(ctx(t), c.admin(), "web", nil))(t)
	if again := must(c.getPod("web"))(t); !proto.Equal(again, p) {
		t.Errorf("again: %v", again)
	}
	must(evict(ctx(t), c.admin(), "web", &metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(5))}))(t)
	if p := must(c.getPod("web"))(t); p.Metadata.GetDeletionGracePeriodSeconds() != 5 {
		t.Errorf("shortened: %v", p.Metadata)
	}
	if s := c.getBudget("b").Status; s.DisruptionsAllowed != 1 {
		t.Errorf("budget: %v", s)
	}
}

// Who was deleted otherwise gets the reason of the eviction. spec: DISR-4
func TestEvictionOfWhoIsGoing(t *testing.T) {
	c := start(t)
	c.register("n1")
	c.budget("b", 1, 1)
	p := c.runs("web", true)
	must(deletePod(t, c.admin(), p, nil, true))(t)
	must(evict(ctx(t), c.admin(), "web", nil))(t)
	now := must(c.getPod("web"))(t)
	if d := target(now); d.GetReason() != "EvictionByEvictionAPI" {
		t.Errorf("condition %v", d)
	}
	if now.Metadata.GetDeletionGracePeriodSeconds() != 30 {
		t.Errorf("the grace has changed: %v", now.Metadata)
	}
}

// Nothing is written, neither to the pod nor to the budget, when an eviction is refused. spec: DISR-2, DEL-5, DEL-8
func TestEvictionsThatAreRefused(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := c.runs("web", true)
	c.budget("b", 3, 1)
	revision := must(c.getPod("web"))(t).Metadata.ResourceVersion
	budget := c.getBudget("b").Metadata.ResourceVersion
	with := func(p *metav1.Preconditions) *metav1.DeleteOptions { return &metav1.DeleteOptions{Preconditions: p} }
	for _, x := range []struct {
		name string
		do   func() error
		want apierrors.Reason
		text string
	}{
		{"no such pod", func() error { return second(evict(ctx(t), c.admin(), "other", nil)) }, apierrors.NotFound, "other"},
		{"another uid", func() error {
			return second(evict(ctx(t), c.admin(), "web", with(&metav1.Preconditions{Uid: ptr("x")})))
		}, apierrors.Conflict, "UID in precondition"},
		{"an older revision", func() error {
			return second(evict(ctx(t), c.admin(), "web", with(&metav1.Preconditions{ResourceVersion: ptr("1")})))
		}, apierrors.Conflict, "ResourceVersion in precondition"},
		{"a bad option", func() error {
			return second(evict(ctx(t), c.admin(), "web", &metav1.DeleteOptions{PropagationPolicy: ptr("x")}))
		}, apierrors.Invalid, "propagationPolicy"},
		{"a bad dry run", func() error { return second(evict(ctx(t), c.admin(), "web", nil, "x")) },
			apierrors.Invalid, "dryRun"},
		{"two ideas of a dry run", func() error {
			return second(evict(ctx(t), c.admin(), "web", &metav1.DeleteOptions{DryRun: []string{"All"}}, "All", "All"))
		}, apierrors.BadRequest, "dry-run"},
		{"two names", func() error {
			return second(c.admin().Pods.Evict(ctx(t), &corev1rpc.EvictPodRequest{Namespace: "default", Name: "web",
				Object: &policyv1.Eviction{Metadata: &metav1.ObjectMeta{Name: "other"}}}))
		}, apierrors.BadRequest, "name in URL does not match"},
		{"two namespaces", func() error {
			return second(c.admin().Pods.Evict(ctx(t), &corev1rpc.EvictPodRequest{Namespace: "default", Name: "web",
				Object: &policyv1.Eviction{Metadata: &metav1.ObjectMeta{Namespace: "other"}}}))
		}, apierrors.BadRequest, "namespace"},
		{"nothing", func() error { return second(c.admin().Pods.Evict(ctx(t), &corev1rpc.EvictPodRequest{})) },
			apierrors.BadRequest, "name"},
		{"an agent", func() error { return second(evict(ctx(t), c.agent("n1"), "web", nil)) },
			apierrors.Forbidden, "eviction"},
		{"a controller", func() error { return second(evict(ctx(t), c.controller("podgc"), "web", nil)) },
			apierrors.Forbidden, "eviction"},
		{"the scheduler", func() error { return second(evict(ctx(t), c.scheduler(), "web", nil)) },
			apierrors.Forbidden, "eviction"},
		{"a budget that is used up", func() error {
			c.counted(c.getBudget("b"), 3, 3)
			budget = c.getBudget("b").Metadata.ResourceVersion
			return second(evict(ctx(t), c.admin(), "web", nil))
		}, apierrors.TooManyRequests, "would violate the pod's disruption budget"},
		{"a budget that has just changed", func() error {
			next := clone(c.counted(c.getBudget("b"), 3, 1))
			next.Spec.MinAvailable.IntVal++
			must(c.admin().PodDisruptionBudgets.Update(ctx(t), &policyv1rpc.UpdatePodDisruptionBudgetRequest{Object: next}))(t)
			budget = c.getBudget("b").Metadata.ResourceVersion
			return second(evict(ctx(t), c.admin(), "web", nil))
		}, apierrors.TooManyRequests, "would violate the pod's disruption budget"},
		{"two budgets", func() error {
			c.budget("b2", 3, 1)
			return second(evict(ctx(t), c.admin(), "web", nil))
		}, apierrors.InternalError, "more than one PodDisruptionBudget"},
	} {
		err := x.do()
		if !apierrors.Is(err, x.want) || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: %v, want %s with %q", x.name, err, x.want, x.text)
		}
		if now := must(c.getPod("web"))(t); now.Metadata.ResourceVersion != revision {
			t.Fatalf("%s: the pod has changed: %v", x.name, now)
		}
		if now := c.getBudget("b"); now.Metadata.ResourceVersion != budget {
			t.Fatalf("%s: the budget has changed: %v", x.name, now)
		}
	}

	// What the preconditions ask for holds.
	must(c.admin().PodDisruptionBudgets.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "b"}))(t)
	must(evict(ctx(t), c.admin(), "web", with(&metav1.Preconditions{
		Uid: ptr(p.Metadata.Uid), ResourceVersion: ptr(revision),
	})))(t)
}

// Pods whose loss is none need no budget. spec: DISR-2
func TestEvictionsWithoutABudget(t *testing.T) {
	c := start(t)
	c.register("n1")
	c.budget("b", 1, 1)
	label := func(name string) *corev1.Pod {
		p := newPod(name)
		p.Metadata.Labels = map[string]string{"app": "web"}
		return c.createPod(p)
	}
	label("pending")
	bound := label("starting")
	if err := c.bind(bound, "n1"); err != nil {
		t.Fatal(err)
	}
	ended := c.runs("ended", true)
	must(setPhase(t, c.agent("n1"), ended, "Failed"))(t)
	for _, name := range []string{"pending", "ended"} {
		must(evict(ctx(t), c.admin(), name, nil))(t)
		if p, err := c.getPod(name); !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("%s is not gone: %v", name, p)
		}
	}
	must(evict(ctx(t), c.admin(), "starting", nil))(t)
	if p := must(c.getPod("starting"))(t); p.Metadata.DeletionTimestamp == nil {
		t.Errorf("not on its way: %v", p)
	}
	c.runs("sick", false)
	must(evict(ctx(t), c.admin(), "sick", nil))(t) // one healthy, and one must be
	if p := must(c.getPod("sick"))(t); p.Metadata.DeletionTimestamp == nil {
		t.Errorf("not on its way: %v", p)
	}
	if s := c.getBudget("b").Status; s.DisruptionsAllowed != 0 || len(s.DisruptedPods) != 0 {
		t.Errorf("budget: %v", s)
	}
}

// A user may force an eviction as a deletion, but not around the budget. spec: DISR-2, DEL-4
func TestForcedEviction(t *testing.T) {
	c := start(t)
	c.register("n1")
	c.runs("web", true)
	b := c.budget("b", 1, 1)
	force := &metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}
	if err := second(evict(ctx(t), c.admin(), "web", force)); !apierrors.Is(err, apierrors.TooManyRequests) {
		t.Errorf("around the budget: %v", err)
	}
	c.counted(b, 1, 0)
	must(evict(ctx(t), c.admin(), "web", force))(t)
	if p, err := c.getPod("web"); !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("not gone: %v", p)
	}
	if s := c.getBudget("b").Status; s.DisruptionsAllowed != 0 || s.DisruptedPods["web"] == nil {
		t.Errorf("budget: %v", s)
	}
}
