// Package authentication describes the kinds of the group authentication.k8s.io: questions about who somebody is, of
// which nothing is stored.
package authentication

import (
	"context"
	"errors"

	"k8s.io/utils/clock"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	authenticationv1rpc "monoplane.dev/api/authentication/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// TokenReview describes a question of which nothing is stored: whose a token is.
func TokenReview(c define.Config) define.Definition {
	return define.Definition{Server: func(object.Backend, func(*object.Kind) object.Backend) any {
		return &tokenReviews{bearers: c.Bearers}
	}}
}

// SelfSubjectReview describes a question of which nothing is stored: who asks it.
func SelfSubjectReview(c define.Config) define.Definition {
	clock := c.Deps.Complete().Clock
	return define.Definition{Server: func(object.Backend, func(*object.Kind) object.Backend) any {
		return selfSubjectReviews{clock: clock}
	}}
}

type tokenReviews struct {
	authenticationv1rpc.UnimplementedTokenReviewsServer
	bearers *authn.Bearers
}

// Create serves TokenReviews.Create.
func (s *tokenReviews) Create(
	ctx context.Context, req *authenticationv1rpc.CreateTokenReviewRequest,
) (*authenticationv1.TokenReview, error) {
	review := req.GetObject()
	if err := checkOptions(req); err != nil {
		return nil, err
	}
	if review.GetSpec().GetToken() == "" {
		return nil, apierrors.New(apierrors.BadRequest, "token is required for TokenReview in authentication")
	}
	out := &authenticationv1.TokenReview{
		Metadata: review.GetMetadata(), Spec: review.GetSpec(), Status: &authenticationv1.TokenReviewStatus{},
	}
	u, audiences, err := s.bearers.User(ctx, review.GetSpec().GetToken(), review.GetSpec().GetAudiences())
	var api *apierrors.Error
	switch {
	case errors.As(err, &api):
		return nil, err
	case err != nil:
		out.Status.Error = err.Error()
	default:
		out.Status.Authenticated, out.Status.User, out.Status.Audiences = true, info(u), audiences
	}
	return out, nil
}

type selfSubjectReviews struct {
	authenticationv1rpc.UnimplementedSelfSubjectReviewsServer
	clock clock.PassiveClock
}

// Create serves SelfSubjectReviews.Create.
func (s selfSubjectReviews) Create(
	ctx context.Context, req *authenticationv1rpc.CreateSelfSubjectReviewRequest,
) (*authenticationv1.SelfSubjectReview, error) {
	if err := checkOptions(req); err != nil {
		return nil, err
	}
	return &authenticationv1.SelfSubjectReview{
		Metadata: &metav1.ObjectMeta{CreationTimestamp: value.Time(s.clock.Now())},
		Status:   &authenticationv1.SelfSubjectReviewStatus{UserInfo: info(authn.UserFrom(ctx))},
	}, nil
}

// options are those of a request.
type options interface {
	GetDryRun() []string
	GetFieldManager() string
	GetFieldValidation() string
}

func checkOptions(req options) error {
	causes := validation.WriteOptions(object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	})
	if len(causes) > 0 {
		return validation.InvalidOptions("CreateOptions", causes)
	}
	return nil
}

// info is what is told of a user.
func info(u *authn.User) *authenticationv1.UserInfo {
	out := &authenticationv1.UserInfo{Username: u.Name, Uid: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if out.Extra == nil {
			out.Extra = make(map[string]*authenticationv1.ExtraValue, len(u.Extra))
		}
		out.Extra[key] = &authenticationv1.ExtraValue{Items: values}
	}
	return out
}
