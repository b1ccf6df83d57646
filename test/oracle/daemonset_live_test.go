//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	apps1 "k8s.io/api/apps/v1"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
)

func theirDaemonSet(t testing.TB, k, old *apps1.DaemonSet) verdict {
	ctx := context.Background()
	now, was := internal(t, k, &apps.DaemonSet{}), internal(t, old, &apps.DaemonSet{})
	daemonset.Strategy.PrepareForUpdate(ctx, now, was) // counts templates, which is not to be a fault
	return verdict{
		Created: theirFaults(daemonset.Strategy.Validate(ctx, now)),
		Updated: theirFaults(daemonset.Strategy.ValidateUpdate(ctx, now, was)),
	}
}
