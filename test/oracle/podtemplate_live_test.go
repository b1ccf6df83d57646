//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
)

func theirPodTemplate(t testing.TB, k, old *v1.PodTemplate) madeTemplate {
	now, was := internal(t, k, &core.PodTemplate{}), internal(t, old, &core.PodTemplate{})
	m := madeTemplate{verdict: verdict{
		Created: theirFaults(podtemplate.Strategy.Validate(context.Background(), now)),
		Updated: theirFaults(podtemplate.Strategy.ValidateUpdate(context.Background(), now, was)),
	}}
	if len(m.Created) == 0 {
		m.Object = external(t, now, &v1.PodTemplate{})
	}
	return m
}
