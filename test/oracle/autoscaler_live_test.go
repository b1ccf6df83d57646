//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	autoscaling1 "k8s.io/api/autoscaling/v1"
	autoscaling2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
)

func theirAutoscaler(t testing.TB, k, old *autoscaling2.HorizontalPodAutoscaler) verdict {
	ctx := request.WithRequestInfo(context.Background(), &request.RequestInfo{APIGroup: "autoscaling", APIVersion: "v2"})
	now := internal(t, k, &autoscaling.HorizontalPodAutoscaler{})
	was := internal(t, old, &autoscaling.HorizontalPodAutoscaler{})
	return verdict{
		Created: theirFaults(horizontalpodautoscaler.Strategy.Validate(ctx, now)),
		Updated: theirFaults(horizontalpodautoscaler.Strategy.ValidateUpdate(ctx, now, was)),
		Status:  theirFaults(horizontalpodautoscaler.StatusStrategy.ValidateUpdate(ctx, now, was)),
	}
}

func theirFilledAutoscaler(
	_ testing.TB, k *autoscaling2.HorizontalPodAutoscaler,
) *autoscaling2.HorizontalPodAutoscaler {
	k = k.DeepCopy()
	legacyscheme.Scheme.Default(k)
	return k
}

func theirAutoscalerV1(t testing.TB, k *autoscaling2.HorizontalPodAutoscaler) *autoscaling1.HorizontalPodAutoscaler {
	return external(t, internal(t, k, &autoscaling.HorizontalPodAutoscaler{}), &autoscaling1.HorizontalPodAutoscaler{})
}

func theirAutoscalerOfV1(t testing.TB, k *autoscaling1.HorizontalPodAutoscaler) *autoscaling2.HorizontalPodAutoscaler {
	return external(t, internal(t, k, &autoscaling.HorizontalPodAutoscaler{}), &autoscaling2.HorizontalPodAutoscaler{})
}
