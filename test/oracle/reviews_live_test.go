//go:build kubernetes

package oracle

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/kubernetes/pkg/apis/authorization"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	"k8s.io/kubernetes/pkg/apis/authorization/validation"
)

func theirReview(t testing.TB, k *authorizationv1.SubjectAccessReview) faults {
	return theirFaults(validation.ValidateSubjectAccessReview(internal(t, k, &authorization.SubjectAccessReview{})))
}

func theirLocalReview(t testing.TB, k *authorizationv1.LocalSubjectAccessReview) faults {
	in := internal(t, k, &authorization.LocalSubjectAccessReview{})
	return theirFaults(validation.ValidateLocalSubjectAccessReview(in))
}

func theirSelfReview(t testing.TB, k *authorizationv1.SelfSubjectAccessReview) faults {
	in := internal(t, k, &authorization.SelfSubjectAccessReview{})
	return theirFaults(validation.ValidateSelfSubjectAccessReview(in))
}
