//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
)

func theirPodWarnings(t testing.TB, k *v1.Pod) warned {
	in := internal(t, k, &core.Pod{})
	if in.Spec.ServiceAccountName == "" {
		in.Spec.ServiceAccountName = "default"
	}
	var said heard // what is said of annotations before they become fields
	ctx := warning.WithWarningRecorder(context.Background(), &said)
	pod.Strategy.PrepareForCreate(ctx, in)
	if len(pod.Strategy.Validate(ctx, in)) > 0 {
		return warned{Wrong: true}
	}
	return warned{Texts: append(said, pod.Strategy.WarningsOnCreate(ctx, in)...)}
}

// heard collects warnings.
type heard []string

// AddWarning implements warning.Recorder.
func (h *heard) AddWarning(_, text string) { *h = append(*h, text) }

func theirTemplateWarnings(t testing.TB, k *v1.PodTemplate) warned {
	in := internal(t, k, &core.PodTemplate{})
	if len(podtemplate.Strategy.Validate(context.Background(), in)) > 0 {
		return warned{Wrong: true}
	}
	return warned{Texts: podtemplate.Strategy.WarningsOnCreate(context.Background(), in)}
}
