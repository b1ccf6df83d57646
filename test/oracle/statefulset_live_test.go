//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	apps1 "k8s.io/api/apps/v1"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
)

func theirStatefulSet(t testing.TB, k, old *apps1.StatefulSet) verdict {
	ctx := context.Background()
	now, was := internal(t, k, &apps.StatefulSet{}), internal(t, old, &apps.StatefulSet{})
	return verdict{
		Created: theirFaults(statefulset.Strategy.Validate(ctx, now)),
		Updated: theirFaults(statefulset.Strategy.ValidateUpdate(ctx, now, was)),
	}
}
