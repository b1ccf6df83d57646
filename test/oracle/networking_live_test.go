//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
)

// ofGroup is the context of a request to a group. Kubernetes logs where its written and its declared rules disagree.
func ofGroup(group string) context.Context {
	return request.WithRequestInfo(klog.NewContext(context.Background(), klog.Logger{}),
		&request.RequestInfo{APIGroup: group, APIVersion: "v1"})
}

// filled is an object with what was left out.
func filled(t testing.TB, k interface {
	upstream
	runtime.Object
}) []byte {
	full := k.DeepCopyObject()
	legacyscheme.Scheme.Default(full)
	return bytesOf(t, full.(upstream))
}

func theirIngress(t testing.TB, k, old *networkingv1.Ingress) filledVerdict {
	ctx := ofGroup("networking.k8s.io")
	now, was := internal(t, k, &networking.Ingress{}), internal(t, old, &networking.Ingress{})
	return filledVerdict{
		verdict: verdict{
			Created: theirFaults(ingress.Strategy.Validate(ctx, now)),
			Updated: theirFaults(ingress.Strategy.ValidateUpdate(ctx, now, was)),
			Status:  theirFaults(ingress.StatusStrategy.ValidateUpdate(ctx, now, was)),
		},
		Filled: filled(t, k),
	}
}

func theirIngressClass(t testing.TB, k, old *networkingv1.IngressClass) filledVerdict {
	ctx := ofGroup("networking.k8s.io")
	now, was := internal(t, k, &networking.IngressClass{}), internal(t, old, &networking.IngressClass{})
	return filledVerdict{
		verdict: verdict{
			Created: theirFaults(ingressclass.Strategy.Validate(ctx, now)),
			Updated: theirFaults(ingressclass.Strategy.ValidateUpdate(ctx, now, was)),
		},
		Filled: filled(t, k),
	}
}

func theirNetworkPolicy(t testing.TB, k, old *networkingv1.NetworkPolicy) filledVerdict {
	ctx := ofGroup("networking.k8s.io")
	now, was := internal(t, k, &networking.NetworkPolicy{}), internal(t, old, &networking.NetworkPolicy{})
	return filledVerdict{
		verdict: verdict{
			Created: theirFaults(networkpolicy.Strategy.Validate(ctx, now)),
			Updated: theirFaults(networkpolicy.Strategy.ValidateUpdate(ctx, now, was)),
		},
		Filled: filled(t, k),
	}
}

func theirServiceCIDR(t testing.TB, k, old *networkingv1.ServiceCIDR) filledVerdict {
	ctx := ofGroup("networking.k8s.io")
	now, was := internal(t, k, &networking.ServiceCIDR{}), internal(t, old, &networking.ServiceCIDR{})
	return filledVerdict{
		verdict: verdict{
			Created: theirFaults(servicecidr.Strategy.Validate(ctx, now)),
			Updated: theirFaults(servicecidr.Strategy.ValidateUpdate(ctx, now, was)),
			Status:  theirFaults(servicecidr.StatusStrategy.ValidateUpdate(ctx, now, was)),
		},
		Filled: filled(t, k),
	}
}

func theirIPAddress(t testing.TB, k, old *networkingv1.IPAddress) filledVerdict {
	ctx := ofGroup("networking.k8s.io")
	now, was := internal(t, k, &networking.IPAddress{}), internal(t, old, &networking.IPAddress{})
	return filledVerdict{
		verdict: verdict{
			Created: theirFaults(ipaddress.Strategy.Validate(ctx, now)),
			Updated: theirFaults(ipaddress.Strategy.ValidateUpdate(ctx, now, was)),
		},
		Filled: filled(t, k),
	}
}
