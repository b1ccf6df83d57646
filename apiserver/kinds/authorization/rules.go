package authorization

import (
	"context"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	authorizationv1 "monoplane.dev/api/authorization/v1"
	authorizationv1rpc "monoplane.dev/api/authorization/v1/rpc"
)

// SelfSubjectRulesReview describes a question of which nothing is stored: what the client may do.
func SelfSubjectRulesReview(c define.Config) define.Definition {
	return define.Definition{Server: func(object.Backend, func(*object.Kind) object.Backend) any {
		return &selfSubjectRulesReviews{reviewer: reviewerOf(c)}
	}}
}

type selfSubjectRulesReviews struct {
	authorizationv1rpc.UnimplementedSelfSubjectRulesReviewsServer
	reviewer
}

// Create serves SelfSubjectRulesReviews.Create.
func (s *selfSubjectRulesReviews) Create(
	ctx context.Context, req *authorizationv1rpc.CreateSelfSubjectRulesReviewRequest,
) (*authorizationv1.SelfSubjectRulesReview, error) {
	review := req.GetObject()
	if err := invalid(authorizationv1.SelfSubjectRulesReviewKind, &validation.Faults{}, req); err != nil {
		return nil, err
	}
	namespace := review.GetSpec().GetNamespace()
	if namespace == "" {
		return nil, apierrors.New(apierrors.BadRequest, "no namespace on request")
	}
	id := auth.From(ctx)
	rules, missing := s.rights.RulesOf(id, namespace)
	out := &authorizationv1.SubjectRulesReviewStatus{
		EvaluationError: strings.Join(missing, ", "),
		// What the table of rights gives components is not written in rules.
		Incomplete: id.Component() || len(missing) > 0,
	}
	for _, r := range rules {
		if len(r.GetResources()) > 0 {
			out.ResourceRules = append(out.ResourceRules, &authorizationv1.ResourceRule{
				Verbs: r.GetVerbs(), ApiGroups: r.GetApiGroups(), Resources: r.GetResources(),
				ResourceNames: r.GetResourceNames(),
			})
		}
		if len(r.GetNonResourceURLs()) > 0 {
			out.NonResourceRules = append(out.NonResourceRules, &authorizationv1.NonResourceRule{
				Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs(),
			})
		}
	}
	return &authorizationv1.SelfSubjectRulesReview{
		Metadata: review.GetMetadata(), Spec: review.GetSpec(), Status: out,
	}, nil
}
