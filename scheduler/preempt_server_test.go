package scheduler_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	policyv1rpc "monoplane.dev/api/policy/v1/rpc"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/scheduler"
)

// until follows a pod until it is as wanted.
func until(t testing.TB, c *client.Client, name, what string, wanted func(p *corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := c.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	var last *corev1.Pod
	for {
		batch, err := w.Recv()
		if err != nil {
			t.Fatalf("%s: never %s: %v\n%s", name, what, err, last.AppendJSON(nil))
		}
		for _, e := range batch.GetEvents() {
			if last = e.GetObject(); wanted(last) {
				return last
			}
		}
	}
}

// The whole way through the real server with the rights that the scheduler has: a class gives the priority, the victim
// is marked and deleted gracefully, the node is nominated, and the pod takes the room when the node's agent has ended
// the victim.
//
// spec: PRIO-2, PREEMPT-1, PREEMPT-2, PREEMPT-4
func TestRealServerPreemption(t *testing.T) {
	s := apitest.Start(t)
	r := race{t, s.As}
	r.register("4")
	runScheduler(t, scheduler.Config{Client: r.as(authn.SchedulerName), Seed: 1, InitialBackoff: 10 * time.Millisecond})
	admin := r.admin()
	r.must(admin.PriorityClasses.Create(t.Context(),
		&schedulingv1rpc.CreatePriorityClassRequest{Object: &schedulingv1.PriorityClass{
			Metadata: &metav1.ObjectMeta{Name: "high"}, Value: 1000,
		}}))
	create := func(name, class string) *corev1.Pod {
		p := realPod(name)
		p.Spec.PriorityClassName = class
		p.Spec.Containers[0].Resources.Requests = quantities("cpu=3")
		p, err := admin.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p})
		r.must(nil, err)
		return p
	}
	create("low", "")
	await(t, admin, 1)
	high := create("high", "high")
	low := until(t, admin, "low", "terminating",
		func(p *corev1.Pod) bool { return p.GetMetadata().GetDeletionTimestamp() != nil })
	if !slices.ContainsFunc(low.GetStatus().GetConditions(), func(c *corev1.PodCondition) bool {
		return c.GetType() == "DisruptionTarget" && c.GetStatus() == "True" && c.GetReason() == "PreemptionByScheduler"
	}) {
		t.Errorf("conditions %v", low.GetStatus().GetConditions())
	}
	if got := low.GetMetadata().GetDeletionGracePeriodSeconds(); got != 30 {
		t.Errorf("a grace of %d s", got)
	}
	until(t, admin, "high", "nominated", func(p *corev1.Pod) bool { return p.GetStatus().GetNominatedNodeName() == "n1" })
	told := func() string {
		w, err := admin.Events.Watch(t.Context(), &metav1.WatchRequest{Namespace: "default",
			FieldSelector: "involvedObject.name=low"})
		r.must(nil, err)
		for {
			batch, err := w.Recv()
			if err != nil {
				return err.Error()
			}
			for _, e := range batch.GetEvents() {
				if o := e.GetObject(); o.GetReason() == "Preempted" {
					return o.GetMessage()
				}
			}
		}
	}()
	if want := "Preempted by pod " + high.GetMetadata().GetUid() + " on node n1"; told != want {
		t.Errorf("event %q", told)
	}
	r.must(r.agent().Pods.PatchStatus(t.Context(), &metav1.PatchRequest{
		Namespace: "default", Name: "low", PatchType: "application/strategic-merge-patch+json",
		Patch: []byte(`{"metadata":{"uid":"` + low.GetMetadata().GetUid() + `"},"status":{"phase":"Failed"}}`),
	}))
	now := int64(0)
	r.must(r.agent().Pods.Delete(t.Context(), &metav1.DeleteRequest{
		Namespace: "default", Name: "low", GracePeriodSeconds: &now,
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &low.Metadata.Uid}},
	}))
	high = until(t, admin, "high", "bound", func(p *corev1.Pod) bool { return p.GetSpec().GetNodeName() != "" })
	if high.GetSpec().GetNodeName() != "n1" || high.GetStatus().GetNominatedNodeName() != "" {
		t.Errorf("on %q, nominated to %q", high.GetSpec().GetNodeName(), high.GetStatus().GetNominatedNodeName())
	}
}

// Of two victims that would do, the one goes that no budget keeps, although the other has run for less time; and when
// there is no other, the one that a budget keeps. spec: PREEMPT-3
func TestRealServerPreemptionKnowsBudgets(t *testing.T) {
	s := apitest.Start(t)
	r := race{t, s.As}
	r.register("4")
	admin := r.admin()
	r.must(admin.PriorityClasses.Create(t.Context(),
		&schedulingv1rpc.CreatePriorityClassRequest{Object: &schedulingv1.PriorityClass{
			Metadata: &metav1.ObjectMeta{Name: "high"}, Value: 1000,
		}}))
	create := func(name, class string) *corev1.Pod {
		p := realPod(name)
		p.Metadata.Labels = map[string]string{"app": name}
		p.Spec.PriorityClassName = class
		p.Spec.Containers[0].Resources.Requests = quantities("cpu=2")
		p, err := admin.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p})
		r.must(nil, err)
		return p
	}
	start := func(p *corev1.Pod, at time.Time) {
		r.must(r.as(authn.SchedulerName).Pods.Bind(t.Context(), &corev1rpc.BindPodRequest{Object: &corev1.Binding{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: p.Metadata.Name, Uid: p.Metadata.Uid},
			Target:   &corev1.ObjectReference{Kind: "Node", Name: "n1"},
		}}))
		r.must(r.agent().Pods.UpdateStatus(t.Context(), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: p.Metadata.Name, Uid: p.Metadata.Uid},
			Status: &corev1.PodStatus{Phase: "Running", StartTime: value.Time(at), Conditions: []*corev1.PodCondition{
				{Type: "Ready", Status: "True", LastTransitionTime: value.Time(at)},
			}},
		}}))
	}
	epoch := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	start(create("spare", ""), epoch)
	start(create("kept", ""), epoch.Add(time.Hour))
	// Its status allows nothing until a controller counts it, of which there is none here.
	r.must(admin.PodDisruptionBudgets.Create(t.Context(), &policyv1rpc.CreatePodDisruptionBudgetRequest{
		Object: &policyv1.PodDisruptionBudget{
			Metadata: &metav1.ObjectMeta{Name: "b", Namespace: "default"},
			Spec: &policyv1.PodDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}},
			},
		},
	}))
	runScheduler(t, scheduler.Config{Client: r.as(authn.SchedulerName), Seed: 1, InitialBackoff: 10 * time.Millisecond})
	terminating := func(p *corev1.Pod) bool { return p.GetMetadata().GetDeletionTimestamp() != nil }
	create("first", "high")
	until(t, admin, "spare", "terminating", terminating)
	kept, err := admin.Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "kept"})
	if err != nil || terminating(kept) {
		t.Errorf("the pod that a budget keeps had to go: %v (%v)", kept.GetMetadata(), err)
	}
	create("second", "high")
	until(t, admin, "kept", "terminating", terminating)
}
