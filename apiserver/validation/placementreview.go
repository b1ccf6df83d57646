package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/apierrors"
)

// maxReviewNodes is how many nodes a placement review may name.
const maxReviewNodes = 10_000

// PlacementReview checks a question about a pod's place. The pod that it describes is checked as one that is created.
func PlacementReview(r *schedulingv1.PlacementReview) []apierrors.Cause {
	var f faults
	for f.pass() {
		s, p := r.GetSpec(), f.root("spec")
		switch {
		case s.GetPodName() == "" && s.GetPod() == nil:
			f.required(p.Child("podName"), "either podName or pod must be given")
		case s.GetPodName() != "" && s.GetPod() != nil:
			f.forbidden(p.Child("pod"), "may not be given together with podName")
		case s.GetPodName() != "":
			f.subdomain(p.Child("podName"), s.GetPodName())
		}
		f.notNegative(p.Child("limit"), int64(s.GetLimit()))
		f.reviewNodes(p.Child("nodes"), s.GetNodes())
	}
	return f.causes()
}

func (f *faults) reviewNodes(p *fieldPath, names []string) {
	if len(names) > maxReviewNodes {
		f.add(p, field.TooMany(nil, len(names), maxReviewNodes))
		return
	}
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		if seen[name] {
			f.duplicate(p.Index(i), name)
		}
		seen[name] = true
		f.subdomain(p.Index(i), name)
	}
}
