// Package storage describes the kinds of storage.k8s.io.
package storage

import (
	"maps"
	"slices"
	"strings"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// StorageClass describes the kind.
func StorageClass(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*storagev1.StorageClass]{
		Kind:     storagev1.StorageClassKind,
		Default:  DefaultStorageClass,
		Validate: ValidateStorageClass,
		Warn: func(next, _ *storagev1.StorageClass) (w validation.Warnings) {
			for i, t := range next.GetAllowedTopologies() {
				for j, e := range t.GetMatchLabelExpressions() {
					if text, old := validation.OldNodeLabel(e.GetKey()); old {
						w.Add(validation.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"),
							"%s", text)
					}
				}
			}
			return w
		},
		Main: registry.TypedUpdateRules[*storagev1.StorageClass]{Validate: ValidateStorageClassUpdate},
		Table: storageClassTable{define.Columns[*storagev1.StorageClass]{
			define.Text("Provisioner", "Who makes volumes.", (*storagev1.StorageClass).GetProvisioner),
			define.Text("ReclaimPolicy", "What becomes of the storage when its claim goes.",
				(*storagev1.StorageClass).GetReclaimPolicy),
			define.Text("VolumeBindingMode", "When claims are bound.", (*storagev1.StorageClass).GetVolumeBindingMode),
			define.Any("AllowVolumeExpansion", "Whether claims may ask for more.", func(o *storagev1.StorageClass) any {
				return o.GetAllowVolumeExpansion()
			}),
			define.Age[*storagev1.StorageClass](),
		}},
	}.Strategy()}
}

// storageClassTable marks the default classes beside their names.
type storageClassTable struct {
	columns define.Columns[*storagev1.StorageClass]
}

// Columns returns the columns.
func (t storageClassTable) Columns() []table.Column { return t.columns.Columns() }

// Cells returns the cells of one class.
func (t storageClassTable) Cells(o object.Object, now time.Time) []any {
	cells := t.columns.Cells(o, now)
	if storage.IsDefault(o) {
		cells[0] = o.GetMetadata().GetName() + " (default)"
	}
	return cells
}

var _ table.Definition = storageClassTable{}

// DefaultStorageClass fills in a class.
func DefaultStorageClass(c *storagev1.StorageClass) {
	defaults.Message(&c.Metadata)
	defaults.SetPtr(&c.ReclaimPolicy, "Delete")
	defaults.SetPtr(&c.VolumeBindingMode, "Immediate")
}

const (
	maxParameters     = 512
	maxParameterBytes = 256 << 10
)

// ValidateStorageClass checks a class that is to be created.
func ValidateStorageClass(c *storagev1.StorageClass) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkStorageClass(f, c, nil)
	}
	return f.Causes()
}

// ValidateStorageClassUpdate checks that a change of a class is allowed: what made its volumes stays.
func ValidateStorageClassUpdate(new, old *storagev1.StorageClass) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkStorageClass(f, new, old)
		if !maps.Equal(new.GetParameters(), old.GetParameters()) {
			f.InvalidValue(f.Root("parameters"), new.GetParameters(), validation.Immutable)
		}
		if new.GetProvisioner() != old.GetProvisioner() {
			f.Invalid(f.Root("provisioner"), new.GetProvisioner(), validation.Immutable)
		}
		policy, mode := classRules(new)
		wasPolicy, wasMode := classRules(old)
		validation.Fixed(f, f.Root("reclaimPolicy"), policy, wasPolicy)
		validation.Fixed(f, f.Root("volumeBindingMode"), mode, wasMode)
	}
	return f.Causes()
}

func classRules(c *storagev1.StorageClass) (reclaimPolicy, bindingMode *string) {
	if c == nil {
		return nil, nil
	}
	return c.ReclaimPolicy, c.VolumeBindingMode
}

func checkStorageClass(f *validation.Faults, c, old *storagev1.StorageClass) {
	f.CoreMeta(c.GetMetadata(), old.GetMetadata(), false, validation.NameIsSubdomain)
	if c.GetProvisioner() == "" {
		f.Required(f.Root("provisioner"), "")
	} else {
		f.Qualified(f.Root("provisioner"), strings.ToLower(c.GetProvisioner()))
	}
	checkParameters(f, f.Root("parameters"), c.GetParameters())
	if policy := c.GetReclaimPolicy(); policy != "" {
		f.OneOf(f.Root("reclaimPolicy"), policy, "Delete", "Retain")
	}
	if _, mode := classRules(c); mode == nil {
		f.Required(f.Root("volumeBindingMode"), "")
	} else {
		f.OneOf(f.Root("volumeBindingMode"), c.GetVolumeBindingMode(), "Immediate", "WaitForFirstConsumer")
	}
	checkTopologies(f, f.Root("allowedTopologies"), c.GetAllowedTopologies())
}

func checkParameters(f *validation.Faults, p *validation.Path, set map[string]string) {
	if len(set) > maxParameters {
		f.TooLong(p, maxParameters)
		return
	}
	total := 0
	for k, v := range set {
		if k == "" {
			f.Invalid(p, k, "field can not be empty.")
		}
		total += len(k) + len(v)
	}
	if total > maxParameterBytes {
		f.TooLong(p, maxParameterBytes)
	}
}

// checkTopologies checks terms over labels of nodes, which must say something, and no two of them the same.
func checkTopologies(f *validation.Faults, p *validation.Path, terms []*corev1.TopologySelectorTerm) {
	var seen []map[string][]string
	for i, t := range terms {
		at := p.Index(i).Child("matchLabelExpressions")
		labels := map[string][]string{}
		for j, r := range t.GetMatchLabelExpressions() {
			checkTopology(f, at.Index(j), r)
			if _, ok := labels[r.GetKey()]; ok {
				f.Duplicate(at.Index(j).Child("key"), r.GetKey())
			}
			values := slices.Clone(r.GetValues())
			slices.Sort(values)
			labels[r.GetKey()] = slices.Compact(values)
		}
		same := func(o map[string][]string) bool { return maps.EqualFunc(o, labels, slices.Equal) }
		if len(labels) == 0 || slices.ContainsFunc(seen, same) {
			f.Duplicate(at, "") // An empty term too, as in Kubernetes.
		}
		seen = append(seen, labels)
	}
}

func checkTopology(f *validation.Faults, p *validation.Path, r *corev1.TopologySelectorLabelRequirement) {
	values := p.Child("values")
	if len(r.GetValues()) == 0 {
		f.Required(values, "")
	}
	had := map[string]bool{}
	for i, v := range r.GetValues() {
		if had[v] {
			f.Duplicate(values.Index(i), v)
		}
		had[v] = true
	}
	f.Qualified(p.Child("key"), r.GetKey())
}
