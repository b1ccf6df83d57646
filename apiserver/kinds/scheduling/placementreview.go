package scheduling

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/lingering"
	podphase "monoplane.dev/rules/phase"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
)

// PlacementReview describes a kind of which nothing is stored.
func PlacementReview(c define.Config) define.Definition {
	return define.Definition{Server: func(_ object.Backend, backendOf func(*object.Kind) object.Backend) any {
		return &placementReviews{pods: backendOf(corev1.PodKind), scheduler: c.Scheduler}
	}}
}

// placementReviews answers reviews. What the pod alone can tell is answered here, all else by the scheduler.
type placementReviews struct {
	schedulingv1rpc.UnimplementedPlacementReviewsServer
	pods      object.Backend
	scheduler define.Explainer
}

// Create serves PlacementReviews.Create.
func (s *placementReviews) Create(
	ctx context.Context, req *schedulingv1rpc.CreatePlacementReviewRequest,
) (*schedulingv1.PlacementReview, error) {
	review, opts := req.GetObject(), object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	}
	m := &metav1.ObjectMeta{}
	if review.GetMetadata() != nil {
		m = review.GetMetadata().Shallow()
	}
	if causes := append(validation.WriteOptions(opts), ValidatePlacementReview(review)...); len(causes) > 0 {
		return nil, apierrors.NewInvalid(schedulingv1.PlacementReviewKind, m.GetName(), causes)
	}
	switch {
	case req.GetNamespace() == "" && m.Namespace == "":
		return nil, apierrors.New(apierrors.BadRequest, "an empty namespace may not be set for a namespaced resource")
	case m.Namespace == "":
		m.Namespace = req.GetNamespace()
	case req.GetNamespace() != "" && req.GetNamespace() != m.Namespace:
		return nil, apierrors.New(apierrors.BadRequest,
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	pod, err := s.pod(ctx, m.Namespace, review.GetSpec(), opts)
	if err != nil {
		return nil, err
	}
	status := settled(pod)
	if status == nil {
		if status, err = s.ask(ctx, pod, review.GetSpec()); err != nil {
			return nil, err
		}
	}
	return &schedulingv1.PlacementReview{Metadata: m, Spec: review.GetSpec(), Status: status}, nil
}

// pod returns the pod that is meant, or the one that is described as it would be created.
func (s *placementReviews) pod(
	ctx context.Context, namespace string, spec *schedulingv1.PlacementReviewSpec, opts object.WriteOptions,
) (*corev1.Pod, error) {
	var o object.Object
	var err error
	if described := spec.GetPod(); described != nil {
		described = object.Clone(described) // the answer repeats it as it was
		if described.Metadata == nil {
			described.Metadata = &metav1.ObjectMeta{}
		}
		if described.Metadata.Name == "" && described.Metadata.GenerateName == "" {
			described.Metadata.GenerateName = "pod-"
		}
		opts.DryRun = []string{"All"}
		o, err = s.pods.Create(ctx, namespace, described, opts)
	} else {
		o, err = s.pods.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: spec.GetPodName()})
	}
	if err != nil {
		return nil, err
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("the backend of pods answered with %T", o)
	}
	return pod, nil
}

// settled answers for a pod that has its node, or gets none any more; nil for one that waits.
func settled(pod *corev1.Pod) *schedulingv1.PlacementReviewStatus {
	answer := func(reason, format string, args ...any) *schedulingv1.PlacementReviewStatus {
		text := fmt.Sprintf(format, args...)
		return &schedulingv1.PlacementReviewStatus{
			SchedulerName: pod.GetSpec().GetSchedulerName(), Message: text,
			Holds: []*schedulingv1.PlacementHold{{Reason: reason, Message: text}},
		}
	}
	switch node := pod.GetSpec().GetNodeName(); {
	case pod.GetMetadata().GetDeletionTimestamp() != nil && lingering.Why(pod) != "":
		return answer("Terminating", "the pod is being deleted, and node %s keeps it: %s", node, lingering.Why(pod))
	case podphase.Terminal(pod):
		return answer("Ended", "the pod has ended with phase %s", pod.GetStatus().GetPhase())
	case node != "":
		return answer("Bound", "the pod is bound to node %s", node)
	case pod.GetMetadata().GetDeletionTimestamp() != nil:
		return answer("Terminating", "the pod is being deleted, and gets no node any more")
	default:
		return nil
	}
}

// ask asks the scheduler that the pod chose.
func (s *placementReviews) ask(
	ctx context.Context, pod *corev1.Pod, spec *schedulingv1.PlacementReviewSpec,
) (*schedulingv1.PlacementReviewStatus, error) {
	if s.scheduler == nil {
		return nil, apierrors.New(apierrors.ServiceUnavailable, "this server has no connection to schedulers")
	}
	ask := &schedulingv1rpc.ExplainCall{Pod: pod, Nodes: spec.GetNodes(), Limit: spec.GetLimit()}
	status, err := s.scheduler.Explain(ctx, ask)
	if status != nil || err != nil {
		return status, err
	}
	name := pod.GetSpec().GetSchedulerName()
	text := fmt.Sprintf("no scheduler named %q is connected to this server", name)
	return &schedulingv1.PlacementReviewStatus{
		SchedulerName: name, Message: text, Holds: []*schedulingv1.PlacementHold{{Reason: "NoScheduler", Message: text}},
	}, nil
}

// maxReviewNodes is how many nodes a placement review may name.
const maxReviewNodes = 10_000

// ValidatePlacementReview checks a question about a pod's place. The pod that it describes is checked as one that is
// created.
func ValidatePlacementReview(r *schedulingv1.PlacementReview) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		s, p := r.GetSpec(), f.Root("spec")
		switch {
		case s.GetPodName() == "" && s.GetPod() == nil:
			f.Required(p.Child("podName"), "either podName or pod must be given")
		case s.GetPodName() != "" && s.GetPod() != nil:
			f.Forbidden(p.Child("pod"), "may not be given together with podName")
		case s.GetPodName() != "":
			f.Subdomain(p.Child("podName"), s.GetPodName())
		}
		f.NotNegative(p.Child("limit"), int64(s.GetLimit()))
		checkReviewNodes(f, p.Child("nodes"), s.GetNodes())
	}
	return f.Causes()
}

func checkReviewNodes(f *validation.Faults, p *validation.Path, names []string) {
	if len(names) > maxReviewNodes {
		f.Add(p, field.TooMany(nil, len(names), maxReviewNodes))
		return
	}
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		if seen[name] {
			f.Duplicate(p.Index(i), name)
		}
		seen[name] = true
		f.Subdomain(p.Index(i), name)
	}
}
