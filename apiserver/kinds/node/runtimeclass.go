// Package node describes the kinds of group node.k8s.io.
package node

import (
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
	nodev1 "monoplane.dev/api/node/v1"
)

// RuntimeClass describes the kind. Pods look classes up in the cache.
func RuntimeClass(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*nodev1.RuntimeClass]{
		Kind:            nodev1.RuntimeClassKind,
		CreateOnUpdate:  true,
		RequireRevision: true,
		Default:         DefaultRuntimeClass,
		Validate:        ValidateRuntimeClass,
		Warn: func(next, _ *nodev1.RuntimeClass) (w validation.Warnings) {
			selector := next.GetScheduling().GetNodeSelector()
			for _, key := range validation.Sorted(&validation.Few{}, selector) {
				if text, old := validation.OldNodeLabel(key); old {
					w.Add(validation.NewPath("scheduling", "nodeSelector"), "%s", text)
				}
			}
			return w
		},
		Main:       registry.TypedUpdateRules[*nodev1.RuntimeClass]{Validate: ValidateRuntimeClassUpdate},
		ReadCached: true,
		Table: define.Columns[*nodev1.RuntimeClass]{
			define.Text("Handler", "Name of the configuration of the runtime.", (*nodev1.RuntimeClass).GetHandler),
			define.Age[*nodev1.RuntimeClass](),
		},
	}.Strategy()}
}

// DefaultRuntimeClass fills in a class.
func DefaultRuntimeClass(c *nodev1.RuntimeClass) {
	defaults.Message(&c.Metadata)
	defaults.Round(c.Overhead.GetPodFixed())
}

// ValidateRuntimeClass checks a class that is to be created.
func ValidateRuntimeClass(c *nodev1.RuntimeClass) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkRuntimeClass(f, c)
	}
	return f.Causes()
}

// ValidateRuntimeClassUpdate checks that a change of a class is allowed; pods keep the handler that they began with.
func ValidateRuntimeClassUpdate(new, old *nodev1.RuntimeClass) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkRuntimeClass(f, new)
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		if new.GetHandler() != old.GetHandler() {
			f.Invalid(f.Root("handler"), new.GetHandler(), validation.Immutable)
		}
	}
	return f.Causes()
}

func checkRuntimeClass(f *validation.Faults, c *nodev1.RuntimeClass) {
	f.ObjectMeta(c.GetMetadata(), false, validation.NameIsSubdomain)
	f.RequiredLabel(f.Root("handler"), c.GetHandler())
	if fixed := c.GetOverhead().GetPodFixed(); len(fixed) > 0 {
		f.Requirements(f.Root("overhead"), &corev1.ResourceRequirements{Limits: fixed}, validation.OfContainer)
	}
	s, p := c.GetScheduling(), f.Root("scheduling")
	f.Labels(p.Child("nodeSelector"), s.GetNodeSelector())
	podspec.CheckTolerations(f, p.Child("tolerations"), s.GetTolerations())
	type key struct{ key, operator, value, effect string }
	seen := make(map[key]bool, len(s.GetTolerations()))
	for i, t := range s.GetTolerations() {
		k := key{t.GetKey(), t.GetOperator(), t.GetValue(), t.GetEffect()}
		if seen[k] {
			f.Duplicate(p.Child("tolerations").Index(i), t.GetKey())
		}
		seen[k] = true
	}
}
