// Package apps describes the kinds of group apps.
package apps

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	appsv1 "monoplane.dev/api/apps/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// ControllerRevision describes the kind.
func ControllerRevision(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*appsv1.ControllerRevision]{
		Kind:     appsv1.ControllerRevisionKind,
		Default:  DefaultControllerRevision,
		Validate: ValidateControllerRevision,
		Main:     registry.TypedUpdateRules[*appsv1.ControllerRevision]{Validate: ValidateControllerRevisionUpdate},
		Table: define.Columns[*appsv1.ControllerRevision]{
			define.Text("Controller", "The controller whose state it is.", controllerOf),
			define.Any("Revision", "Place among the revisions of the controller.", func(o *appsv1.ControllerRevision) any {
				return o.GetRevision()
			}),
			define.Age[*appsv1.ControllerRevision](),
		},
	}.Strategy()}
}

// controllerOf names the controller that a revision belongs to, such as "daemonset.apps/web".
func controllerOf(o *appsv1.ControllerRevision) string {
	for _, r := range o.GetMetadata().GetOwnerReferences() {
		if !r.GetController() {
			continue
		}
		kind := r.GetKind()
		if group, _, ok := strings.Cut(r.GetApiVersion(), "/"); ok {
			kind += "." + group
		}
		return strings.ToLower(kind) + "/" + r.GetName()
	}
	return "<none>"
}

// DefaultControllerRevision fills in a revision.
func DefaultControllerRevision(o *appsv1.ControllerRevision) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Data)
}

// ValidateControllerRevision checks a revision that is to be created.
func ValidateControllerRevision(o *appsv1.ControllerRevision) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkControllerRevision(f, o, nil)
		data := f.Root("data")
		var state any
		switch err := json.Unmarshal(o.GetData().GetRaw(), &state); {
		case len(o.GetData().GetRaw()) == 0, err == nil && state == nil:
			f.Required(data, "data is mandatory")
		case err != nil:
			f.Invalid(data, "<value omitted>", "error parsing data: "+err.Error())
		default:
			if _, ok := state.(map[string]any); !ok {
				f.Required(data, "data must be a valid JSON object")
			}
		}
	}
	return f.Causes()
}

// ValidateControllerRevisionUpdate checks that a change of a revision is allowed; its data stays as it is.
func ValidateControllerRevisionUpdate(new, old *appsv1.ControllerRevision) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkControllerRevision(f, new, old.GetMetadata())
		if !sameJSON(new.GetData().GetRaw(), old.GetData().GetRaw()) {
			f.Invalid(f.Root("data"), "<value omitted>", validation.Immutable)
		}
	}
	return f.Causes()
}

func checkControllerRevision(f *validation.Faults, o *appsv1.ControllerRevision, old *metav1.ObjectMeta) {
	f.CoreMeta(o.GetMetadata(), old, true, validation.NameIsSubdomain)
	f.NotNegative(f.Root("revision"), o.GetRevision())
}

// sameJSON says whether two texts mean the same, however they are written: clients that read and write a revision may
// order fields anew.
func sameJSON(a, b []byte) bool {
	x, y := parsed(a), parsed(b)
	return bytes.Equal(a, b) || x != nil && reflect.DeepEqual(x, y)
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
