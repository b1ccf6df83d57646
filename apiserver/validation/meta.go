package validation

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"monoplane.dev/codec/wire"
	"monoplane.dev/rules/propagation"

	metav1 "monoplane.dev/api/meta/v1"
)

const (
	// maxAnnotations is the most bytes that the keys and values of all annotations may have (OBJ-4).
	maxAnnotations = 256 << 10
	// maxManager is the most bytes of the name of a field manager.
	maxManager = 128
	// maxSubresource is the most bytes of the name of a subresource in managedFields.
	maxSubresource = 256

	// Immutable is said of a field that may not change.
	Immutable = "field is immutable"
)

// ObjectMeta checks the metadata of a new object, after its name was generated.
func (f *Faults) ObjectMeta(m *metav1.ObjectMeta, namespaced bool, name NameFunc) {
	p := f.Root("metadata")
	if g := m.GetGenerateName(); g != "" {
		f.Invalid(p.Child("generateName"), g, name(g, true)...)
	}
	if n := m.GetName(); n == "" {
		f.Required(p.Child("name"), "name or generateName is required")
	} else {
		f.Invalid(p.Child("name"), n, name(n, false)...)
	}
	ns := m.GetNamespace()
	switch {
	case namespaced:
		f.RequiredLabel(p.Child("namespace"), ns)
	case ns != "":
		f.Forbidden(p.Child("namespace"), "not allowed on this type")
	}
	f.NotNegative(p.Child("generation"), m.GetGeneration())
	f.freeMeta(m)
	f.finalizers(p.Child("finalizers"), m.GetFinalizers())
}

// freeMeta checks the part of metadata that may change at any time.
func (f *Faults) freeMeta(m *metav1.ObjectMeta) {
	p := f.Root("metadata")
	f.Labels(p.Child("labels"), m.GetLabels())
	f.Annotations(p.Child("annotations"), m.GetAnnotations())
	f.owners(p.Child("ownerReferences"), m.GetOwnerReferences())
	f.managedFields(p.Child("managedFields"), m.GetManagedFields())
}

// Annotations checks annotations.
func (f *Faults) Annotations(p *Path, set map[string]string) {
	var room Few
	total := 0
	for _, k := range Sorted(&room, set) {
		f.Invalid(p, k, WrongQualifiedName(strings.ToLower(k))...)
		total += len(k) + len(set[k])
	}
	if total > maxAnnotations {
		f.TooLong(p, maxAnnotations)
	}
}

func (f *Faults) owners(p *Path, refs []*metav1.OwnerReference) {
	controller := ""
	for _, r := range refs {
		group, version, found := strings.Cut(r.GetApiVersion(), "/")
		if !found {
			group, version = "", group
		}
		if version == "" || strings.Contains(version, "/") {
			f.Invalid(p.Child("apiVersion"), r.GetApiVersion(), "version must not be empty")
		}
		for _, part := range []struct{ name, value string }{
			{"kind", r.GetKind()}, {"name", r.GetName()}, {"uid", r.GetUid()},
		} {
			if part.value == "" {
				f.Invalid(p.Child(part.name), part.value, "must not be empty")
			}
		}
		if group == "" && version == "v1" && r.GetKind() == "Event" {
			f.Invalid(p, r.GetName(), "/v1, Kind=Event is disallowed from being an owner")
		}
		if !r.GetController() {
			continue
		}
		this := r.GetKind() + "/" + r.GetName()
		if controller != "" {
			f.Invalid(p, this, fmt.Sprintf("Only one reference can have Controller set to true. "+
				"Found \"true\" in references for %v and %v", controller, this))
			continue
		}
		controller = this
	}
}

const (
	finalizerOrphan     = propagation.OrphanFinalizer
	finalizerForeground = propagation.ForegroundFinalizer
	finalizerNamespace  = "kubernetes"
)

func (f *Faults) finalizers(p *Path, names []string) {
	for _, n := range names {
		f.Qualified(p, n)
	}
	if slices.Contains(names, finalizerOrphan) && slices.Contains(names, finalizerForeground) {
		f.Invalid(p, strings.Join(names, ","),
			fmt.Sprintf("finalizer %s and %s cannot be both set", finalizerOrphan, finalizerForeground))
	}
}

// CoreFinalizers checks the rule of the core group: a finalizer without a domain is one of three.
func (f *Faults) CoreFinalizers(names []string) {
	for i, n := range names {
		f.CoreFinalizer(f.Root("metadata").Child("finalizers").Index(i), n)
	}
}

// CoreFinalizer is CoreFinalizers for one finalizer, wherever it stands.
func (f *Faults) CoreFinalizer(p *Path, name string) {
	if strings.Contains(name, "/") {
		return
	}
	switch name {
	case finalizerOrphan, finalizerForeground, finalizerNamespace:
	default:
		f.Invalid(p, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}

func (f *Faults) managedFields(p *Path, entries []*metav1.ManagedFieldsEntry) {
	for i, e := range entries {
		at := p.Index(i)
		if op := e.GetOperation(); op != "Apply" && op != "Update" {
			f.Invalid(at.Child("operation"), op, "must be `Apply` or `Update`")
		}
		if t := e.GetFieldsType(); t != "" && t != "FieldsV1" {
			f.Invalid(at.Child("fieldsType"), t, "must be `FieldsV1`")
		}
		f.manager(at.Child("manager"), e.GetManager())
		if len(e.GetSubresource()) > maxSubresource {
			f.TooLong(at.Child("subresource"), maxSubresource)
		}
	}
}

func (f *Faults) manager(p *Path, name string) {
	if len(name) > maxManager {
		f.TooLong(p, maxManager)
	}
	for i, r := range name {
		if !unicode.IsPrint(r) {
			f.Invalid(p, name, fmt.Sprintf("invalid character %#U (at position %d)", r, i))
		}
	}
}

// ObjectMetaUpdate checks what of the metadata may not change, or not so. ObjectMeta checks the rest.
func (f *Faults) ObjectMetaUpdate(new, old *metav1.ObjectMeta) {
	p := f.Root("metadata")
	if old.GetDeletionTimestamp() != nil {
		f.noNewFinalizers(p.Child("finalizers"), new.GetFinalizers(), old.GetFinalizers())
	}
	if new.GetGeneration() < old.GetGeneration() {
		f.InvalidValue(p.Child("generation"), new.GetGeneration(), "must not be decremented")
	}
	for _, s := range []struct{ name, new, old string }{
		{"name", new.GetName(), old.GetName()},
		{"namespace", new.GetNamespace(), old.GetNamespace()},
		{"uid", new.GetUid(), old.GetUid()},
	} {
		if s.new != s.old {
			f.Invalid(p.Child(s.name), s.new, Immutable)
		}
	}
	f.sameTime(p.Child("creationTimestamp"), new.GetCreationTimestamp(), old.GetCreationTimestamp())
	f.sameTime(p.Child("deletionTimestamp"), new.GetDeletionTimestamp(), old.GetDeletionTimestamp())
	if !Same(grace(new), grace(old)) {
		f.InvalidValue(p.Child("deletionGracePeriodSeconds"), grace(new), Immutable)
	}
	f.freeMeta(new)
}

func grace(m *metav1.ObjectMeta) *int64 {
	if m == nil {
		return nil
	}
	return m.DeletionGracePeriodSeconds
}

// Same compares optional values.
func Same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// Fixed refuses another value than the field had.
func Fixed[T comparable](f *Faults, p *Path, new, old *T) {
	if !Same(new, old) {
		f.InvalidValue(p, new, Immutable)
	}
}

func (f *Faults) sameTime(p *Path, new, old *metav1.Time) {
	if !wire.Equal(OrZero(new), OrZero(old)) {
		f.InvalidValue(p, ShownTime(new), Immutable)
	}
}

// OrZero returns t, and the zero time for none.
func OrZero(t *metav1.Time) *metav1.Time {
	if t == nil {
		return &metav1.Time{}
	}
	return t
}

func (f *Faults) noNewFinalizers(p *Path, new, old []string) {
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
		f.Forbidden(p, fmt.Sprintf(
			"no new finalizers can be added if the object is being deleted, found new finalizers %#v",
			slices.Compact(extra)))
	}
}

// CoreMeta checks the metadata of an object of the core group, or of another that takes its rules, against its old
// metadata unless it is new.
func (f *Faults) CoreMeta(m, old *metav1.ObjectMeta, namespaced bool, name NameFunc) {
	if old != nil {
		f.ObjectMetaUpdate(m, old)
	}
	f.ObjectMeta(m, namespaced, name)
	f.CoreFinalizers(m.GetFinalizers())
}
