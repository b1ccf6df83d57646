//go:build kubernetes

package oracle

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/pod"
)

func theirPodUpdate(t testing.TB, k, old *v1.Pod) faults {
	now, was := internal(t, k, &core.Pod{}), internal(t, old, &core.Pod{})
	pod.Strategy.PrepareForUpdate(context.Background(), now, was)
	return theirFaults(pod.Strategy.ValidateUpdate(context.Background(), now, was))
}

func theirPodResize(t testing.TB, k, old *v1.Pod) made[*v1.Pod] {
	now, was := internal(t, k, &core.Pod{}), internal(t, old, &core.Pod{})
	pod.ResizeStrategy.PrepareForUpdate(context.Background(), now, was)
	if errs := pod.ResizeStrategy.ValidateUpdate(context.Background(), now, was); len(errs) > 0 {
		return made[*v1.Pod]{Faults: theirFaults(errs)}
	}
	return made[*v1.Pod]{Object: external(t, now, &v1.Pod{})}
}

func theirEphemeralContainers(t testing.TB, k, old *v1.Pod) made[*v1.Pod] {
	now, was := internal(t, k, &core.Pod{}), internal(t, old, &core.Pod{})
	pod.EphemeralContainersStrategy.PrepareForUpdate(context.Background(), now, was)
	if errs := pod.EphemeralContainersStrategy.ValidateUpdate(context.Background(), now, was); len(errs) > 0 {
		for _, e := range errs {
			// Kubernetes goes on with what has changed, and writes an empty path as [].
			e.Detail, _, _ = strings.Cut(e.Detail, "\n")
			e.Field = strings.TrimPrefix(e.Field, "[]")
		}
		return made[*v1.Pod]{Faults: theirFaults(errs)}
	}
	return made[*v1.Pod]{Object: external(t, now, &v1.Pod{})}
}

func theirPodStatus(t testing.TB, k, old *v1.Pod) faults {
	return theirFaults(pod.StatusStrategy.ValidateUpdate(context.Background(), internal(t, k, &core.Pod{}),
		internal(t, old, &core.Pod{})))
}
