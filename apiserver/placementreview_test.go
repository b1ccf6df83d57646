package apiserver_test

import (
	"context"
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/client/inproc"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
)

// explainer stands for the schedulers: it knows the default one, and says nothing of others.
type explainer struct {
	asked []*schedulingv1rpc.ExplainCall
}

func (e *explainer) Explain(_ context.Context, ask *schedulingv1rpc.ExplainCall) (*schedulingv1.PlacementReviewStatus,
	error) {
	e.asked = append(e.asked, ask)
	if ask.GetPod().GetSpec().GetSchedulerName() != "default-scheduler" {
		return nil, nil
	}
	return &schedulingv1.PlacementReviewStatus{Message: "asked about " + ask.GetPod().GetMetadata().GetName()}, nil
}

func (c client) review(t testing.TB, spec *schedulingv1.PlacementReviewSpec) (*schedulingv1.PlacementReviewStatus,
	error) {
	r, err := c.PlacementReviews.Create(ctx(t), &schedulingv1rpc.CreatePlacementReviewRequest{
		Namespace: "default", Object: &schedulingv1.PlacementReview{Spec: spec},
	})
	return r.GetStatus(), err
}

func TestPlacementReview(t *testing.T) {
	e := &explainer{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Scheduler = e })
	c.register("n1")
	c.createPod(newPod("waits"))
	c.boundPod("bound", "n1")
	ended := c.boundPod("ended", "n1")
	must(setPhase(t, c.agent("n1"), ended, "Succeeded"))(t)
	held := newPod("held")
	held.Metadata.Finalizers = []string{"test/hold"}
	c.createPod(held)
	must(deletePod(t, c.admin(), held, nil, false))(t)
	other := newPod("other")
	other.Spec.SchedulerName = "mine"
	c.createPod(other)

	for name, want := range map[string]struct{ message, hold string }{
		"waits": {"asked about waits", ""},
		"bound": {"the pod is bound to node n1", "Bound"},
		"ended": {"the pod has ended with phase Succeeded", "Ended"},
		"held":  {"the pod is being deleted, and gets no node any more", "Terminating"},
		"other": {`no scheduler named "mine" is connected to this server`, "NoScheduler"},
	} {
		st, err := c.admin().review(t, &schedulingv1.PlacementReviewSpec{PodName: name})
		hold := ""
		if len(st.GetHolds()) > 0 {
			hold = st.GetHolds()[0].GetReason()
		}
		if err != nil || st.GetMessage() != want.message || hold != want.hold {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if _, err := c.admin().review(t, &schedulingv1.PlacementReviewSpec{PodName: "nobody"}); !apierrors.Is(err,
		apierrors.NotFound) {
		t.Errorf("a pod that is not there: %v", err)
	}
}

// A pod that is described is completed, admitted and checked as one that is created, and nothing is stored.
func TestReviewImaginedPod(t *testing.T) {
	e := &explainer{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Scheduler = e })
	before := must(c.store.Revision(ctx(t)))(t)
	pod := newPod("")
	pod.Spec.PriorityClassName = "system-node-critical"
	pod.Metadata.Namespace = ""
	if _, err := c.admin().review(t,
		&schedulingv1.PlacementReviewSpec{Pod: pod, Nodes: []string{"a"}, Limit: 3}); err != nil {
		t.Fatal(err)
	}
	ask := e.asked[0]
	got := ask.GetPod()
	if got.GetSpec().GetPriority() != 2_000_001_000 || got.GetSpec().GetSchedulerName() != "default-scheduler" ||
		got.GetMetadata().GetUid() == "" ||
		!strings.HasPrefix(got.GetMetadata().GetName(), "pod-") || got.GetMetadata().GetNamespace() != "default" ||
		got.GetStatus().GetPhase() != "Pending" {
		t.Errorf("the scheduler was asked about %v", got)
	}
	if len(ask.GetNodes()) != 1 || ask.GetLimit() != 3 {
		t.Errorf("the scheduler was asked %v", ask)
	}
	if pod.GetMetadata().GetName() != "" || pod.GetSpec().GetSchedulerName() != "" {
		t.Errorf("the question was changed: %v", pod)
	}

	// What comes over the network may be changed, but the answer repeats the question.
	owned := schedulingv1rpc.NewPlacementReviewsClient(
		c.server.Conn(inproc.WithContext(func(ctx context.Context) context.Context {
			return object.WithOwned(authn.WithUser(ctx, adminUser()))
		})))
	answer, err := owned.Create(ctx(t),
		&schedulingv1rpc.CreatePlacementReviewRequest{Namespace: "default", Object: &schedulingv1.PlacementReview{
			Spec: &schedulingv1.PlacementReviewSpec{Pod: newPod("given")},
		}})
	if err != nil || answer.GetSpec().GetPod().GetSpec().GetSchedulerName() != "" ||
		answer.GetStatus().GetMessage() != "asked about given" {
		t.Errorf("given away: %v, %v", answer, err)
	}

	bad := newPod("bad")
	bad.Spec.Containers[0].Image = ""
	bad.Spec.RestartPolicy = "Sometimes"
	_, err = c.admin().review(t, &schedulingv1.PlacementReviewSpec{Pod: bad})
	if !apierrors.Is(err, apierrors.Invalid) || len(apierrors.From(err).Status().GetDetails().GetCauses()) != 2 {
		t.Errorf("a bad pod: %v", err)
	}
	unknown := newPod("classy")
	unknown.Spec.PriorityClassName = "nope"
	if _, err := c.admin().review(t, &schedulingv1.PlacementReviewSpec{Pod: unknown}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("a pod of an unknown class: %v", err)
	}
	elsewhere := newPod("x")
	elsewhere.Metadata.Namespace = "kube-system"
	if _, err := c.admin().review(t, &schedulingv1.PlacementReviewSpec{Pod: elsewhere}); !apierrors.Is(err,
		apierrors.BadRequest) {
		t.Errorf("a pod of another namespace: %v", err)
	}
	if after := must(c.store.Revision(ctx(t)))(t); after != before {
		t.Errorf("the store went from %d to %d", before, after)
	}
	c.createPod(newPod("taken"))
	if _, err := c.admin().review(t, &schedulingv1.PlacementReviewSpec{Pod: newPod("taken")}); !apierrors.Is(err,
		apierrors.AlreadyExists) {
		t.Errorf("a pod that is there: %v", err)
	}
}

func TestReviewIsValidated(t *testing.T) {
	c := start(t, func(cfg *apiserver.Config) { cfg.Scheduler = &explainer{} })
	for name, v := range map[string]struct {
		spec  *schedulingv1.PlacementReviewSpec
		field string
	}{
		"nothing":    {nil, "spec.podName"},
		"both":       {&schedulingv1.PlacementReviewSpec{PodName: "a", Pod: newPod("b")}, "spec.pod"},
		"a bad name": {&schedulingv1.PlacementReviewSpec{PodName: "A/b"}, "spec.podName"},
		"a limit":    {&schedulingv1.PlacementReviewSpec{PodName: "a", Limit: -1}, "spec.limit"},
		"twice":      {&schedulingv1.PlacementReviewSpec{PodName: "a", Nodes: []string{"n", "n"}}, "spec.nodes[1]"},
		"a bad node": {&schedulingv1.PlacementReviewSpec{PodName: "a", Nodes: []string{"N/"}}, "spec.nodes[0]"},
		"too many":   {&schedulingv1.PlacementReviewSpec{PodName: "a", Nodes: make([]string, 10_001)}, "spec.nodes"},
	} {
		_, err := c.admin().review(t, v.spec)
		causes := apierrors.From(err).Status().GetDetails().GetCauses()
		if !apierrors.Is(err, apierrors.Invalid) || len(causes) != 1 || causes[0].GetField() != v.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	reviews := c.admin().PlacementReviews
	object := &schedulingv1.PlacementReview{Metadata: &metav1.ObjectMeta{Namespace: "other"},
		Spec: &schedulingv1.PlacementReviewSpec{PodName: "a"}}
	for _, namespace := range []string{"default", ""} {
		req := &schedulingv1rpc.CreatePlacementReviewRequest{Namespace: namespace, Object: object}
		if namespace == "" {
			req.Object = &schedulingv1.PlacementReview{Spec: object.Spec}
		}
		if _, err := reviews.Create(ctx(t), req); !apierrors.Is(err, apierrors.BadRequest) {
			t.Errorf("namespace %q: %v", namespace, err)
		}
	}
}

// Administrators ask, nobody else. Without a connection to schedulers there is no answer.
func TestReviewPermissions(t *testing.T) {
	c := start(t)
	c.createPod(newPod("p"))
	spec := &schedulingv1.PlacementReviewSpec{PodName: "p"}
	for name, as := range map[string]client{
		"a node": c.agent("n1"), "the scheduler": c.scheduler(), "a controller": c.controller("x"),
		"podgc":  c.controller("podgc"),
		"a user": c.as(&authn.User{Name: "jane"}),
	} {
		if _, err := as.review(t, spec); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.as(nil).review(t, spec); !apierrors.Is(err, apierrors.Unauthorized) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := c.admin().review(t, spec); !apierrors.Is(err, apierrors.ServiceUnavailable) {
		t.Errorf("without schedulers: %v", err)
	}
}
