//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	endpointsv1 "k8s.io/kubernetes/pkg/api/v1/endpoints"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/discovery"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	"k8s.io/kubernetes/pkg/apis/discovery/validation"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
)

func theirEndpoints(t testing.TB, k, old *v1.Endpoints) verdict {
	now, was := internal(t, k, &core.Endpoints{}), internal(t, old, &core.Endpoints{})
	return verdict{
		Created: theirFaults(corevalidation.ValidateEndpointsCreate(now)),
		Updated: theirFaults(endpoint.Strategy.ValidateUpdate(context.Background(), now, was)),
	}
}

func theirEndpointSlice(t testing.TB, k, old *discoveryv1.EndpointSlice) verdict {
	now, was := internal(t, k, &discovery.EndpointSlice{}), internal(t, old, &discovery.EndpointSlice{})
	return verdict{
		Created: theirFaults(validation.ValidateEndpointSliceCreate(now)),
		Updated: theirFaults(validation.ValidateEndpointSliceUpdate(now, was)),
	}
}

func theirSubsets(_ testing.TB, k *v1.Endpoints) *v1.Endpoints {
	return &v1.Endpoints{Subsets: endpointsv1.RepackSubsets(k.DeepCopy().Subsets)}
}
