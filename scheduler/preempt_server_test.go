package scheduler_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
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
		&schedulingv1.CreatePriorityClassRequest{Object: &schedulingv1.PriorityClass{
			Metadata: &metav1.ObjectMeta{Name: "high"}, Value: 1000,
		}}))
	create := func(name, class string) *corev1.Pod {
		p := realPod(name)
		p.Spec.PriorityClassName = class
		p.Spec.Containers[0].Resources.Requests = quantities("cpu=3")
		p, err := admin.Pods.Create(t.Context(), &corev1.CreatePodRequest{Object: p})
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
