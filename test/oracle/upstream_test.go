package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// created is a pod as Kubernetes would store it, and what it finds wrong with it.
func created(t testing.TB, p *v1.Pod) (*v1.Pod, faults) {
	t.Helper()
	answer := ask[made[*v1.Pod]](t, "pods", p)
	return answer.Object, answer.Faults
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

type faults = map[fault]bool

// verdict is what Kubernetes finds wrong with an object that is created, with a change to it, and with its status.
type verdict struct{ Created, Updated, Status faults }

// made is an object as Kubernetes would store it, unless it finds something wrong with it.
type made[T any] struct {
	Faults faults
	Object T
}

func (f fault) String() string { return f.kind + " " + f.field + ": " + f.message }

// MarshalText writes a fault as a key of JSON.
func (f fault) MarshalText() ([]byte, error) {
	return json.Marshal([]string{f.kind, f.field, f.message})
}

// UnmarshalText reads what MarshalText wrote.
func (f *fault) UnmarshalText(text []byte) error {
	var parts [3]string
	err := json.Unmarshal(text, &parts)
	f.kind, f.field, f.message = parts[0], parts[1], parts[2]
	return err
}

func ourFaults(causes []apierrors.Cause) faults {
	set := faults{}
	for _, c := range causes {
		set[fault{c.Type, c.Field, c.Message}] = true
	}
	return set
}

// compare returns how the two lists of faults differ; empty when they do not.
func compare(theirs, mine faults) []string {
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
