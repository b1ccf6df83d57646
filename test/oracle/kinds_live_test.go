//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/coordination"
	coordvalidation "k8s.io/kubernetes/pkg/apis/coordination/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/registry/core/node"
)

func theirNode(t testing.TB, k, old *v1.Node) verdict {
	now, was := internal(t, k, &core.Node{}), internal(t, old, &core.Node{})
	return verdict{
		Created: theirFaults(node.Strategy.Validate(context.Background(), now)),
		Updated: theirFaults(node.Strategy.ValidateUpdate(context.Background(), now, was)),
	}
}

func theirConfigMap(t testing.TB, k, old *v1.ConfigMap) verdict {
	now, was := internal(t, k, &core.ConfigMap{}), internal(t, old, &core.ConfigMap{})
	return verdict{
		Created: theirFaults(corevalidation.ValidateConfigMap(now)),
		Updated: theirFaults(corevalidation.ValidateConfigMapUpdate(now, was)),
	}
}

func theirNamespace(t testing.TB, k, old *v1.Namespace) namespaceVerdict {
	now, was := internal(t, k, &core.Namespace{}), internal(t, old, &core.Namespace{})
	return namespaceVerdict{
		verdict: verdict{
			Created: theirFaults(corevalidation.ValidateNamespace(now)),
			Updated: theirFaults(corevalidation.ValidateNamespaceUpdate(now, was)),
			Status:  theirFaults(corevalidation.ValidateNamespaceStatusUpdate(now, was)),
		},
		Finalized: theirFaults(corevalidation.ValidateNamespaceFinalizeUpdate(now, was)),
	}
}

func theirLease(t testing.TB, k, old *coordv1.Lease) verdict {
	now, was := internal(t, k, &coordination.Lease{}), internal(t, old, &coordination.Lease{})
	return verdict{
		Created: theirFaults(coordvalidation.ValidateLease(now)),
		Updated: theirFaults(coordvalidation.ValidateLeaseUpdate(now, was)),
	}
}

func theirEvent(t testing.TB, k *v1.Event) faults {
	group := schema.GroupVersion{Version: "v1"}
	return theirFaults(corevalidation.ValidateEventCreate(internal(t, k, &core.Event{}), group))
}

func theirEventOfTheNewGroup(t testing.TB, k, old *eventsv1.Event) verdict {
	group := schema.GroupVersion{Group: "events.k8s.io", Version: "v1"}
	now, was := internal(t, k, &core.Event{}), internal(t, old, &core.Event{})
	return verdict{
		Created: theirFaults(corevalidation.ValidateEventCreate(now, group)),
		Updated: theirFaults(corevalidation.ValidateEventUpdate(now, was, group)),
	}
}

func theirDeleteOptions(_ testing.TB, k *metav1.DeleteOptions) faults {
	return theirFaults(metavalidation.ValidateDeleteOptions(k))
}

func theirSecret(t testing.TB, k, old *v1.Secret) verdict {
	now, was := internal(t, k, &core.Secret{}), internal(t, old, &core.Secret{})
	return verdict{
		Created: theirFaults(corevalidation.ValidateSecret(now)),
		Updated: theirFaults(corevalidation.ValidateSecretUpdate(now, was)),
	}
}
