package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"

	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

func TestMain(m *testing.M) {
	// Kubernetes runs with --allow-privileged nearly everywhere; Monoplane has no such switch.
	capabilities.Setup(true, 0)
	m.Run()
}

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

// created is a pod as Kubernetes would store it, and what it finds wrong with it.
func created(t testing.TB, p *v1.Pod) (*v1.Pod, field.ErrorList) {
	t.Helper()
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
	attrs := admission.NewAttributesRecord(in, nil, core.Kind("Pod").WithVersion("v1"), in.Namespace, in.Name,
		core.Resource("pods").WithVersion("v1"), "", admission.Create, nil, false, nil)
	tolerations := defaulttolerationseconds.NewDefaultTolerationSeconds()
	tolerations.InspectFeatureGates(nil)
	if err := tolerations.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	if err := tolerations.Admit(context.Background(), attrs, nil); err != nil {
		t.Fatal(err)
	}
	pod.Strategy.PrepareForCreate(context.Background(), in)
	errs := pod.Strategy.Validate(context.Background(), in)
	out := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(in, out, nil); err != nil {
		t.Fatal(err)
	}
	return out, errs
}

// ourPod is a pod as Monoplane receives it.
func ourPod(t testing.TB, p *v1.Pod) *corev1.Pod {
	t.Helper()
	out, err := ours(p, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// keep copies what a server keeps for itself into the metadata of an update.
func keep(now, was *metav1.ObjectMeta) {
	now.Generation, now.CreationTimestamp = was.GetGeneration(), was.GetCreationTimestamp()
}

// fault is what both sides can agree on: the type and the field always, the message where the value in it
// is a plain one.
type fault struct{ kind, field, message string }

func (f fault) String() string { return f.kind + " " + f.field + ": " + f.message }

func theirFaults(errs field.ErrorList) map[fault]bool {
	set := map[fault]bool{}
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

func ourFaults(causes []apierrors.Cause) map[fault]bool {
	set := map[fault]bool{}
	for _, c := range causes {
		set[fault{c.Type, c.Field, c.Message}] = true
	}
	return set
}

// compare returns how the two lists of faults differ; empty when they do not.
func compare(theirs, mine map[fault]bool) []string {
	var diff []string
	left := maps.Clone(mine)
	maps.DeleteFunc(left, func(f fault, _ bool) bool { return theirs[f] })
	for f := range theirs {
		if mine[f] {
			continue
		}
		found := false
		if f.message == "" {
			// Any message will do; several of their faults may have become one of ours.
			for m := range mine {
				if m.kind == f.kind && m.field == f.field {
					delete(left, m)
					found = true
				}
			}
		}
		if !found {
			diff = append(diff, "only Kubernetes: "+f.String())
		}
	}
	for m := range left {
		diff = append(diff, "only Monoplane:  "+m.String())
	}
	slices.Sort(diff)
	return diff
}

// stored lists where two objects differ.
func stored(t testing.TB, theirs, mine proto.Message) []string {
	t.Helper()
	tree := func(m proto.Message) (tree any) {
		data, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &tree); err != nil {
			t.Fatal(err)
		}
		return tree
	}
	return unequal("", tree(theirs), tree(mine))
}

func unequal(path string, a, b any) []string {
	switch x := a.(type) {
	case map[string]any:
		y, _ := b.(map[string]any)
		var diff []string
		for _, k := range slices.Sorted(maps.Keys(x)) {
			diff = append(diff, unequal(path+"."+k, x[k], y[k])...)
		}
		for _, k := range slices.Sorted(maps.Keys(y)) {
			if _, ok := x[k]; !ok {
				diff = append(diff, unequal(path+"."+k, nil, y[k])...)
			}
		}
		return diff
	case []any:
		y, _ := b.([]any)
		var diff []string
		for i := range max(len(x), len(y)) {
			var p, q any
			if i < len(x) {
				p = x[i]
			}
			if i < len(y) {
				q = y[i]
			}
			diff = append(diff, unequal(fmt.Sprintf("%s[%d]", path, i), p, q)...)
		}
		return diff
	}
	if empty(a) && empty(b) || reflect.DeepEqual(a, b) {
		return nil
	}
	return []string{fmt.Sprintf("stored %s: %v by Kubernetes, %v by Monoplane", path, a, b)}
}

func empty(v any) bool {
	m, ok := v.(map[string]any)
	return v == nil || ok && len(m) == 0
}
