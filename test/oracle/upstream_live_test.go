//go:build kubernetes

package oracle

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"

	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
)

// internal defaults and converts an object as the API server of Kubernetes does when it decodes it.
func internal[T runtime.Object](t testing.TB, versioned runtime.Object, into T) T {
	t.Helper()
	versioned = versioned.DeepCopyObject()
	legacyscheme.Scheme.Default(versioned)
	if err := legacyscheme.Scheme.Convert(versioned, into, nil); err != nil {
		t.Fatal(err)
	}
	return into
}

// external is an object of Kubernetes as it would be stored.
func external[T runtime.Object](t testing.TB, in runtime.Object, into T) T {
	t.Helper()
	if err := legacyscheme.Scheme.Convert(in, into, nil); err != nil {
		t.Fatal(err)
	}
	return into
}

func theirNewPod(t testing.TB, p *v1.Pod) made[*v1.Pod] {
	in := internal(t, p, &core.Pod{})
	if in.Spec.ServiceAccountName == "" {
		in.Spec.ServiceAccountName = "default"
	}
	if in.Spec.Priority == nil {
		in.Spec.Priority = new(int32)
	}
	if in.Spec.PreemptionPolicy == nil {
		policy := core.PreemptLowerPriority
		in.Spec.PreemptionPolicy = &policy
	}
	tolerations := defaulttolerationseconds.NewDefaultTolerationSeconds()
	tolerations.InspectFeatureGates(nil)
	if err := tolerations.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	if err := tolerations.Admit(context.Background(), createdPod(in), nil); err != nil {
		t.Fatal(err)
	}
	pod.Strategy.PrepareForCreate(context.Background(), in)
	if errs := pod.Strategy.Validate(context.Background(), in); len(errs) > 0 {
		return made[*v1.Pod]{Faults: theirFaults(errs)}
	}
	stored := external(t, in, &v1.Pod{})
	for i := range stored.Status.Conditions {
		stored.Status.Conditions[i].LastTransitionTime = metav1.NewTime(longAgo) // in place of now
	}
	return made[*v1.Pod]{Object: stored}
}

// createdPod says to admission that a pod is created.
func createdPod(in *core.Pod) admission.Attributes {
	return admission.NewAttributesRecord(in, nil, core.Kind("Pod").WithVersion("v1"), in.Namespace, in.Name,
		core.Resource("pods").WithVersion("v1"), "", admission.Create, nil, false, nil)
}

func theirFaults(errs field.ErrorList) faults {
	set := faults{}
	for _, e := range errs {
		f := fault{string(e.Type), e.Field, e.ErrorBody()}
		switch e.BadValue.(type) {
		case string, int, int32, int64, bool, nil:
		default:
			if !strings.HasPrefix(fmt.Sprintf("%T", e.BadValue), "core.") || strings.Contains(f.message, "{") {
				f.message = ""
			}
		}
		if strings.HasPrefix(f.message, "Forbidden: pod updates may not change fields") {
			f.message = ""
		}
		set[f] = true
	}
	return set
}
