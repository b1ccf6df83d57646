package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/schedulerstreams"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/test/naive"
)

// reviewServer is an API server that schedulers can be asked over.
func reviewServer(t testing.TB) (as func(name string, groups ...string) *client.Client) {
	t.Helper()
	broker := schedulerstreams.New(schedulerstreams.Config{})
	s := apitest.StartWith(t, apitest.Config{API: apiserver.Config{Scheduler: broker}})
	schedulingv1rpc.RegisterSchedulerStreamsServer(s.Inproc, broker)
	return s.As
}

// review asks about a pod until the scheduler is connected.
func review(
	t testing.TB, c *client.Client, spec *schedulingv1.PlacementReviewSpec,
) (*schedulingv1.PlacementReviewStatus, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		r, err := c.PlacementReviews.Create(ctx, &schedulingv1rpc.CreatePlacementReviewRequest{
			Namespace: "default", Object: &schedulingv1.PlacementReview{Spec: spec},
		})
		if !apierrors.Is(err, apierrors.ServiceUnavailable) || ctx.Err() != nil {
			return r.GetStatus(), err
		}
	}
}

// Two schedulers with names of their own are asked over the server, by many at once; one that has stopped is not there
// any more.
func TestReviewOverServer(t *testing.T) {
	as := reviewServer(t)
	registerNode(t, as, "n1")
	runScheduler(t, scheduler.Config{Client: as(authn.SchedulerName)})
	admin := as(authn.AdminName, authn.AdminsGroup)
	big := realPod("big")
	big.Spec.Containers[0].Resources.Requests = quantities("cpu=100")
	if _, err := admin.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: big}); err != nil {
		t.Fatal(err)
	}
	const want = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is " +
		"not helpful for scheduling."
	var askers sync.WaitGroup
	for i := range 8 {
		askers.Go(func() {
			spec := &schedulingv1.PlacementReviewSpec{PodName: "big"}
			if i%2 == 0 {
				spec = &schedulingv1.PlacementReviewSpec{Pod: realPod("small")}
			}
			st, err := review(t, admin, spec)
			if err != nil || (i%2 == 0) != (st.GetFitCount() == 1) || i%2 == 1 && st.GetMessage() != want {
				t.Errorf("%v, %v", st, err)
			}
		})
	}
	askers.Wait()
	mine := realPod("mine")
	mine.Spec.SchedulerName = "mine"
	st, err := review(t, admin, &schedulingv1.PlacementReviewSpec{Pod: mine})
	if err != nil || len(st.GetHolds()) != 1 || st.GetHolds()[0].GetReason() != "NoScheduler" {
		t.Errorf("another scheduler's: %v, %v", st, err)
	}
}

// Of a pod that is deleted and stays on its node it is said what keeps it.
func TestReviewOfWhatStays(t *testing.T) {
	as := reviewServer(t)
	registerNode(t, as, "n1")
	admin, node := as(authn.AdminName, authn.AdminsGroup), as("system:node:n1", "system:nodes")
	p := realPod("stays")
	p.Spec.NodeName = "n1"
	p, err := admin.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p})
	if err == nil {
		_, err = admin.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "stays"})
	}
	if err != nil {
		t.Fatal(err)
	}
	p = p.Clone()
	p.Metadata.ResourceVersion = ""
	p.Status.Phase = "Failed"
	for _, says := range []string{"", "driver d is away"} { // also once the phase is final
		if says != "" {
			p.Status.Conditions = append(p.Status.Conditions, &corev1.PodCondition{Type: lingering.RemoveFailed,
				Status: "True", Reason: "FailedRemovePod", Message: says})
		}
		_, err := node.Pods.UpdateStatus(t.Context(), &corev1rpc.UpdatePodRequest{
			Namespace: "default", Name: "stays", Object: p,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const want = "the pod is being deleted, and node n1 keeps it: driver d is away"
	st, err := review(t, admin, &schedulingv1.PlacementReviewSpec{PodName: "stays"})
	if err != nil || st.GetMessage() != want || st.GetHolds()[0].GetReason() != "Terminating" {
		t.Errorf("%v, %v, want %s", st, err, want)
	}
}

// FuzzReview: whatever is asked, nothing breaks, and who asks is told what is wrong.
func FuzzReview(f *testing.F) {
	as := reviewServer(f)
	for i := range 3 {
		registerNode(f, as, fmt.Sprint("n", i))
	}
	runScheduler(f, scheduler.Config{Client: as(authn.SchedulerName)})
	admin := as(authn.AdminName, authn.AdminsGroup)
	if _, err := review(f, admin, &schedulingv1.PlacementReviewSpec{Pod: realPod("first")}); err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(60) {
		p := naive.NewDice(seed).Pending("x")
		p.Metadata.Namespace, p.Spec.SchedulerName = "", ""
		f.Add(codec.AppendObject(nil, &schedulingv1.PlacementReview{Spec: &schedulingv1.PlacementReviewSpec{Pod: p}}))
	}
	f.Add([]byte(`{"spec":{"podName":"x"}}`))
	f.Add([]byte(`{"spec":{"pod":{}}}`))
	f.Add([]byte(`{"spec":{"pod":{"spec":{"containers":[{"name":"c","image":"i"}],` +
		`"schedulingGates":[{"name":"a/b"}]}},"nodes":["n1"],"limit":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &schedulingv1.PlacementReview{}
		if _, err := codec.DecodeObject(text, r); err != nil {
			return
		}
		r.Metadata = &metav1.ObjectMeta{Namespace: "default"}
		before := proto.Clone(r)
		answer, err := admin.PlacementReviews.Create(t.Context(), &schedulingv1rpc.CreatePlacementReviewRequest{Object: r})
		if apierrors.Is(err, apierrors.InternalError) || apierrors.Is(err, apierrors.Timeout) {
			t.Errorf("%v", err)
		}
		if !proto.Equal(before, r) {
			t.Error("the question was changed")
		}
		if err == nil && answer.GetStatus().GetMessage() == "" {
			t.Errorf("no answer: %v", answer)
		}
	})
}

// BenchmarkReview is one question over the server about 5 000 nodes, all of which fit.
func BenchmarkReview(b *testing.B) {
	as := reviewServer(b)
	for i := range 5000 {
		registerNode(b, as, fmt.Sprint("n", i))
	}
	runScheduler(b, scheduler.Config{Client: as(authn.SchedulerName)})
	admin := as(authn.AdminName, authn.AdminsGroup)
	for limit, name := range map[int32]string{0: "all", 20: "best20"} {
		b.Run(name, func(b *testing.B) {
			var size int
			for b.Loop() {
				st, err := review(b, admin, &schedulingv1.PlacementReviewSpec{Pod: realPod("p"), Limit: limit})
				if err != nil || st.GetFitCount() != 5000 {
					b.Fatal(st.GetFitCount(), err)
				}
				b.StopTimer()
				size = len(st.AppendJSON(nil))
				b.StartTimer()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
