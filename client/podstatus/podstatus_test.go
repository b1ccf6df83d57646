package podstatus_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/podstatus"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

func mark(_ *corev1.Pod, s *corev1.PodStatus) bool {
	podstatus.SetCondition(s, &corev1.PodCondition{Type: "Marked", Status: "True"})
	return true
}

// What happens between reading a pod and writing its status.
// spec: DEL-11
func TestWrite(t *testing.T) {
	for name, x := range map[string]struct {
		// between happens before the first write, or before all if always.
		between func(t *testing.T, pods corev1rpc.PodsClient, p *corev1.Pod)
		always  bool
		reason  apierrors.Reason
		writes  int
		message string
	}{
		"nothing":      {writes: 1},
		"another one":  {between: say, writes: 2, message: "other"},
		"others write": {between: say, always: true, writes: 5, reason: apierrors.Conflict, message: "other"},
		"deleted":      {between: remove, writes: 1, reason: apierrors.NotFound},
		"replaced": {writes: 1, reason: apierrors.NotFound, between: func(t *testing.T, pods corev1rpc.PodsClient,
			p *corev1.Pod) {
			t.Helper()
			remove(t, pods, p)
			create(t, pods)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := apitest.Start(t)
			pods := server.Admin().Pods
			p := create(t, pods)
			before, writes := proto.Clone(p), 0
			server.React(func(_ context.Context, method string, req any) error {
				if u, ok := req.(*corev1rpc.UpdatePodRequest); ok && method == corev1rpc.Pods_UpdateStatus_FullMethodName &&
					u.GetFieldManager() == "test" {
					if writes++; x.between != nil && (x.always || writes == 1) {
						x.between(t, pods, p)
					}
				}
				return nil
			})
			out, err := podstatus.Write(t.Context(), pods, "test", p, mark)
			if x.reason == "" && err != nil || x.reason != "" && !apierrors.Is(err, x.reason) {
				t.Fatal(err)
			}
			if writes != x.writes {
				t.Errorf("%d writes", writes)
			}
			if !proto.Equal(before, p) {
				t.Error("the pod was changed that is the caller's")
			}
			live, err := pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "a"})
			if err != nil && name != "deleted" {
				t.Fatal(err)
			}
			marked := podstatus.Condition(live.GetStatus(), "Marked").GetStatus() == "True"
			if live.GetStatus().GetMessage() != x.message || marked != (x.reason == "") || x.reason == "" &&
				!proto.Equal(out, live) {
				t.Errorf("got %v, stored %v", out, live)
			}
		})
	}
}

// A change that finds nothing to do any more writes nothing.
func TestWriteNothing(t *testing.T) {
	server := apitest.Start(t)
	pods := server.Admin().Pods
	p := create(t, pods)
	say(t, pods, p)
	before := server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName)
	out, err := podstatus.Write(t.Context(), pods, "test", p, func(now *corev1.Pod, s *corev1.PodStatus) bool {
		return now.GetStatus().GetMessage() == "" && mark(now, s)
	})
	if err != nil || out.GetStatus().GetMessage() != "other" || podstatus.Condition(out.GetStatus(), "Marked") != nil {
		t.Errorf("%v, %v", out, err)
	}
	if n := server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName) - before; n != 1 {
		t.Errorf("%d writes", n)
	}
}

// The time of a condition is that since which it has its status.
func TestSetCondition(t *testing.T) {
	at := func(s int64) *metav1.Time { return value.Time(time.Unix(s, 0)) }
	first := &corev1.PodStatus{Conditions: make([]*corev1.PodCondition, 0, 4)}
	first.Conditions = append(first.Conditions, &corev1.PodCondition{Type: "A", Status: "True", Message: "old",
		LastTransitionTime: at(1)})
	shared := &corev1.PodStatus{Conditions: first.Conditions}
	for _, x := range []struct {
		kind, status string
		since        *metav1.Time
		n            int
	}{{"A", "True", at(1), 1}, {"A", "False", at(2), 1}, {"B", "True", at(2), 2}} {
		s := shared.Shallow()
		podstatus.SetCondition(s, &corev1.PodCondition{Type: x.kind, Status: x.status, Message: "new",
			LastTransitionTime: at(2)})
		c := podstatus.Condition(s, x.kind)
		if len(s.Conditions) != x.n || c.GetMessage() != "new" || c.GetStatus() != x.status ||
			!proto.Equal(c.GetLastTransitionTime(), x.since) {
			t.Errorf("%s=%s: %v", x.kind, x.status, s.Conditions)
		}
		if len(shared.Conditions) != 1 || shared.Conditions[0].GetMessage() != "old" || shared.Conditions[:2][1] != nil {
			t.Fatalf("%s=%s: the list was changed that others have: %v", x.kind, x.status, shared.Conditions[:2])
		}
	}
}

func create(t *testing.T, pods corev1rpc.PodsClient) *corev1.Pod {
	t.Helper()
	p, err := pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// say is another writer of the status.
func say(t *testing.T, pods corev1rpc.PodsClient, p *corev1.Pod) {
	t.Helper()
	p = object.Clone(p)
	// each write changes something
	p.Metadata.ResourceVersion, p.Status = "", &corev1.PodStatus{Phase: "Pending", Message: "other", Reason: rand.Text()}
	if _, err := pods.UpdateStatus(t.Context(), &corev1rpc.UpdatePodRequest{Namespace: "default", Name: "a",
		Object: p}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, pods corev1rpc.PodsClient, p *corev1.Pod) {
	t.Helper()
	zero := int64(0)
	_, err := pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: p.GetMetadata().GetName(),
		GracePeriodSeconds: &zero})
	if err != nil {
		t.Fatal(err)
	}
}
