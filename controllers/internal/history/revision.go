package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	codecjson "monoplane.dev/codec/json"
	"monoplane.dev/rules/semantic"
)

// maxPrefix is the longest part of an owner's name that the names of its revisions begin with.
const maxPrefix = 223

// Name returns the name of a revision.
func Name(owner, hash string) string {
	if len(owner) > maxPrefix {
		owner = owner[:maxPrefix]
	}
	return owner + "-" + hash
}

// Hash returns a short text that stands for a state. Collisions make it another one.
func Hash(data []byte, collisions int32) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789" // no vowels, so that no words arise
	h := fnv.New32()
	_, _ = h.Write(data)
	_, _ = h.Write(strconv.AppendInt(nil, int64(collisions), 10))
	text := []byte(strconv.FormatUint(uint64(h.Sum32()), 10))
	for i, c := range text {
		text[i] = alphabet[int(c)%len(alphabet)]
	}
	return string(text)
}

// Sort puts revisions in their order: by number, then age, then name.
func Sort(all []*appsv1.ControllerRevision) {
	slices.SortStableFunc(all, func(a, b *appsv1.ControllerRevision) int {
		m, n := a.GetMetadata(), b.GetMetadata()
		return cmp.Or(
			cmp.Compare(a.GetRevision(), b.GetRevision()),
			cmp.Compare(m.GetCreationTimestamp().GetSeconds(), n.GetCreationTimestamp().GetSeconds()),
			cmp.Compare(m.GetName(), n.GetName()),
		)
	})
}

// Next returns the number of the revision after some others in their order.
func Next(all []*appsv1.ControllerRevision) int64 {
	if len(all) == 0 {
		return 1
	}
	return all[len(all)-1].GetRevision() + 1
}

// Beyond returns those of some revisions in their order that are one too many, the oldest first: of those that are not
// live limit are kept, or all if it is negative.
func Beyond(all []*appsv1.ControllerRevision, live map[string]bool, limit int) []*appsv1.ControllerRevision {
	if limit < 0 {
		return nil
	}
	var idle []*appsv1.ControllerRevision
	for _, r := range all {
		if !live[r.GetMetadata().GetName()] {
			idle = append(idle, r)
		}
	}
	return idle[:max(0, len(idle)-limit)]
}

// Equal says whether two states mean the same, however they are written: as JSON, and as templates of pods of which
// one writes out what the other leaves out, if they are such.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := parsed(a), parsed(b)
	if x != nil && reflect.DeepEqual(x, y) {
		return true
	}
	s, errS := Template(a)
	t, errT := Template(b)
	return errS == nil && errT == nil && semantic.Equal(s, t)
}

// parsed returns what a text means, with numbers as they are written; nil for no JSON.
func parsed(text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil || d.More() {
		return nil
	}
	return v
}

// directive is the field of a patch that says how what it is in is to be merged.
const directive = "$patch"

// TemplatePatch returns the state whose only part is a template of pods, as Kubernetes and kubectl write it: as a
// strategic merge patch that gives the template back to its owner, with fields in the order of their names.
func TemplatePatch(t *corev1.PodTemplateSpec) ([]byte, error) {
	fields, ok := parsed(t.AppendJSON(nil)).(map[string]any)
	if !ok {
		return nil, errors.New("write the template of a revision: it is no JSON object")
	}
	fields[directive] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// Template returns the template of pods in a state that TemplatePatch, or Kubernetes, made.
func Template(data []byte) (*corev1.PodTemplateSpec, error) {
	var state struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return nil, fmt.Errorf("read the template of a revision: %w", err)
	}
	if len(state.Spec.Template) == 0 {
		return nil, errors.New("read the template of a revision: it has no spec.template")
	}
	t, d := &corev1.PodTemplateSpec{}, codecjson.NewDecoder(state.Spec.Template)
	t.DecodeJSON(d) // the directive is a field that it does not know
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("read the template of a revision: %w", err)
	}
	return t, nil
}
