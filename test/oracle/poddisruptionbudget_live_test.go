//go:build kubernetes

package oracle

import (
	"context"
	"errors"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
)

func theirBudget(t testing.TB, next, before []byte) verdict {
	var k, old policyv1.PodDisruptionBudget
	if err := errors.Join(k.Unmarshal(next), old.Unmarshal(before)); err != nil {
		t.Fatal(err)
	}
	ctx := request.WithRequestInfo(context.Background(), &request.RequestInfo{APIGroup: "policy", APIVersion: "v1"})
	now, was := internal(t, &k, &policy.PodDisruptionBudget{}), internal(t, &old, &policy.PodDisruptionBudget{})
	return verdict{
		Created: theirFaults(poddisruptionbudget.Strategy.Validate(ctx, now)),
		Updated: theirFaults(poddisruptionbudget.Strategy.ValidateUpdate(ctx, now, was)),
		Status:  theirFaults(poddisruptionbudget.StatusStrategy.ValidateUpdate(ctx, now, was)),
	}
}
