package validation

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/wire"
)

const (
	// maxAnnotations is the most bytes that the keys and values of all annotations may have (OBJ-4).
	maxAnnotations = 256 << 10
	// maxManager is the most bytes of the name of a field manager.
	maxManager = 128
	// maxSubresource is the most bytes of the name of a subresource in managedFields.
	maxSubresource = 256

	immutable = "field is immutable"
)

// objectMeta checks the metadata of a new object, after its name was generated.
func (f *faults) objectMeta(m *metav1.ObjectMeta, namespaced bool, name NameFunc) {
	p := f.root("metadata")
	if g := m.GetGenerateName(); g != "" {
		f.invalid(p.Child("generateName"), g, name(g, true)...)
	}
	if n := m.GetName(); n == "" {
		f.required(p.Child("name"), "name or generateName is required")
	} else {
		f.invalid(p.Child("name"), n, name(n, false)...)
	}
	ns := m.GetNamespace()
	switch {
	case namespaced:
		f.requiredLabel(p.Child("namespace"), ns)
	case ns != "":
		f.forbidden(p.Child("namespace"), "not allowed on this type")
	}
	f.notNegative(p.Child("generation"), m.GetGeneration())
	f.freeMeta(m)
	f.finalizers(p.Child("finalizers"), m.GetFinalizers())
}

// freeMeta checks the part of metadata that may change at any time.
func (f *faults) freeMeta(m *metav1.ObjectMeta) {
	p := f.root("metadata")
	f.labels(p.Child("labels"), m.GetLabels())
	f.annotations(p.Child("annotations"), m.GetAnnotations())
	f.owners(p.Child("ownerReferences"), m.GetOwnerReferences())
	f.managedFields(p.Child("managedFields"), m.GetManagedFields())
}

func (f *faults) annotations(p *fieldPath, set map[string]string) {
	var room few
	total := 0
	for _, k := range sorted(&room, set) {
		f.invalid(p, k, wrongQualifiedName(strings.ToLower(k))...)
		total += len(k) + len(set[k])
	}
	if total > maxAnnotations {
		f.tooLong(p, maxAnnotations)
	}
}

func (f *faults) owners(p *fieldPath, refs []*metav1.OwnerReference) {
	controller := ""
	for _, r := range refs {
		group, version, found := strings.Cut(r.GetApiVersion(), "/")
		if !found {
			group, version = "", group
		}
		if version == "" || strings.Contains(version, "/") {
			f.invalid(p.Child("apiVersion"), r.GetApiVersion(), "version must not be empty")
		}
		for _, part := range []struct{ name, value string }{
			{"kind", r.GetKind()}, {"name", r.GetName()}, {"uid", r.GetUid()},
		} {
			if part.value == "" {
				f.invalid(p.Child(part.name), part.value, "must not be empty")
			}
		}
		if group == "" && version == "v1" && r.GetKind() == "Event" {
			f.invalid(p, r.GetName(), "/v1, Kind=Event is disallowed from being an owner")
		}
		if !r.GetController() {
			continue
		}
		this := r.GetKind() + "/" + r.GetName()
		if controller != "" {
			f.invalid(p, this, fmt.Sprintf("Only one reference can have Controller set to true. "+
				"Found \"true\" in references for %v and %v", controller, this))
			continue
		}
		controller = this
	}
}

const (
	finalizerOrphan     = "orphan"
	finalizerForeground = "foregroundDeletion"
	finalizerNamespace  = "kubernetes"
)

func (f *faults) finalizers(p *fieldPath, names []string) {
	for _, n := range names {
		f.qualified(p, n)
	}
	if slices.Contains(names, finalizerOrphan) && slices.Contains(names, finalizerForeground) {
		f.invalid(p, strings.Join(names, ","),
			fmt.Sprintf("finalizer %s and %s cannot be both set", finalizerOrphan, finalizerForeground))
	}
}

// coreFinalizers checks the rule of the core group: a finalizer without a domain is one of three.
func (f *faults) coreFinalizers(names []string) {
	for i, n := range names {
		f.coreFinalizer(f.root("metadata").Child("finalizers").Index(i), n)
	}
}

func (f *faults) coreFinalizer(p *fieldPath, name string) {
	if strings.Contains(name, "/") {
		return
	}
	switch name {
	case finalizerOrphan, finalizerForeground, finalizerNamespace:
	default:
		f.invalid(p, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}

func (f *faults) managedFields(p *fieldPath, entries []*metav1.ManagedFieldsEntry) {
	for i, e := range entries {
		at := p.Index(i)
		if op := e.GetOperation(); op != "Apply" && op != "Update" {
			f.invalid(at.Child("operation"), op, "must be `Apply` or `Update`")
		}
		if t := e.GetFieldsType(); t != "" && t != "FieldsV1" {
			f.invalid(at.Child("fieldsType"), t, "must be `FieldsV1`")
		}
		f.manager(at.Child("manager"), e.GetManager())
		if len(e.GetSubresource()) > maxSubresource {
			f.tooLong(at.Child("subresource"), maxSubresource)
		}
	}
}

func (f *faults) manager(p *fieldPath, name string) {
	if len(name) > maxManager {
		f.tooLong(p, maxManager)
	}
	for i, r := range name {
		if !unicode.IsPrint(r) {
			f.invalid(p, name, fmt.Sprintf("invalid character %#U (at position %d)", r, i))
		}
	}
}

func (f *faults) objectMetaUpdate(new, old *metav1.ObjectMeta) {
	p := f.root("metadata")
	if old.GetDeletionTimestamp() != nil {
		f.noNewFinalizers(p.Child("finalizers"), new.GetFinalizers(), old.GetFinalizers())
	}
	if new.GetGeneration() < old.GetGeneration() {
		f.invalidValue(p.Child("generation"), new.GetGeneration(), "must not be decremented")
	}
	for _, s := range []struct{ name, new, old string }{
		{"name", new.GetName(), old.GetName()},
		{"namespace", new.GetNamespace(), old.GetNamespace()},
		{"uid", new.GetUid(), old.GetUid()},
	} {
		if s.new != s.old {
			f.invalid(p.Child(s.name), s.new, immutable)
		}
	}
	f.sameTime(p.Child("creationTimestamp"), new.GetCreationTimestamp(), old.GetCreationTimestamp())
	f.sameTime(p.Child("deletionTimestamp"), new.GetDeletionTimestamp(), old.GetDeletionTimestamp())
	if !same(grace(new), grace(old)) {
		f.invalidValue(p.Child("deletionGracePeriodSeconds"), grace(new), immutable)
	}
	f.freeMeta(new)
}

func grace(m *metav1.ObjectMeta) *int64 {
	if m == nil {
		return nil
	}
	return m.DeletionGracePeriodSeconds
}

// same compares optional values.
func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// fixed refuses another value than the field had.
func fixed[T comparable](f *faults, p *fieldPath, new, old *T) {
	if !same(new, old) {
		f.invalidValue(p, new, immutable)
	}
}

func (f *faults) sameTime(p *fieldPath, new, old *metav1.Time) {
	if !wire.Equal(orZero(new), orZero(old)) {
		f.invalidValue(p, shownTime(new), immutable)
	}
}

func orZero(t *metav1.Time) *metav1.Time {
	if t == nil {
		return &metav1.Time{}
	}
	return t
}

func (f *faults) noNewFinalizers(p *fieldPath, new, old []string) {
	had := make(map[string]bool, len(old))
	for _, n := range old {
		had[n] = true
	}
	var extra []string
	for _, n := range new {
		if !had[n] {
			extra = append(extra, n)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		f.forbidden(p, fmt.Sprintf(
			"no new finalizers can be added if the object is being deleted, found new finalizers %#v",
			slices.Compact(extra)))
	}
}
