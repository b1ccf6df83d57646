package claimspec

import (
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

const claimKind = "PersistentVolumeClaim"

// NormalizeDataSource writes where the content of a claim comes from into both fields that can say so. Sources that
// the older of the two could never name are dropped from it, unless the claim had a source before: old is what it
// asked for, or nil.
func NormalizeDataSource(s, old *corev1.PersistentVolumeClaimSpec) {
	had := old.GetDataSource() != nil || old.GetDataSourceRef() != nil
	if !had && s.GetDataSourceRef() == nil && !classic(s.GetDataSource()) {
		s.DataSource = nil
	}
	switch from, ref := s.GetDataSource(), s.GetDataSourceRef(); {
	case from != nil && ref == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{ApiGroup: from.ApiGroup, Kind: from.GetKind(),
			Name: from.GetName()}
	case from == nil && ref != nil && ref.GetNamespace() == "":
		s.DataSource = &corev1.TypedLocalObjectReference{ApiGroup: ref.ApiGroup, Kind: ref.GetKind(),
			Name: ref.GetName()}
	}
}

// classic says whether a source is of a kind that field dataSource is for.
func classic(from *corev1.TypedLocalObjectReference) bool {
	group, kind := from.GetApiGroup(), from.GetKind()
	return group == "" && kind == claimKind || group == "snapshot.storage.k8s.io" && kind == "VolumeSnapshot"
}

func hasGroup(s *corev1.PersistentVolumeClaimSpec) bool {
	from, ref := s.GetDataSource(), s.GetDataSourceRef()
	return from != nil && from.ApiGroup != nil || ref != nil && ref.ApiGroup != nil
}

// reference is what both forms of a reference to a source have in common.
type reference interface {
	GetApiGroup() string
	GetKind() string
	GetName() string
}

func checkDataSources(f *validation.Faults, p *validation.Path, s *corev1.PersistentVolumeClaimSpec, anyGroup bool) {
	from, ref := s.GetDataSource(), s.GetDataSourceRef()
	if from != nil {
		checkReference(f, p.Child("dataSource"), from, anyGroup)
	}
	if ref == nil {
		return
	}
	checkReference(f, p.Child("dataSourceRef"), ref, anyGroup)
	if ref.GetNamespace() != "" {
		f.Label(p.Child("dataSourceRef").Child("namespace"), ref.GetNamespace())
	}
	switch {
	case from == nil:
	case ref.GetNamespace() != "":
		f.Invalid(p, p.Child("dataSource").String(), "may not be specified when dataSourceRef.namespace is specified")
	case !same(from.ApiGroup, ref.ApiGroup) || from.GetKind() != ref.GetKind() || from.GetName() != ref.GetName():
		f.Invalid(p, p.Child("dataSource").String(), "must match dataSourceRef")
	}
}

func checkReference(f *validation.Faults, p *validation.Path, r reference, anyGroup bool) {
	f.RequiredTexts(p, "name", r.GetName(), "kind", r.GetKind())
	if r.GetApiGroup() == "" && r.GetKind() != claimKind {
		f.Invalid(p, r.GetKind(), "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
	if r.GetApiGroup() != "" && !anyGroup {
		f.Subdomain(p.Child("apiGroup"), r.GetApiGroup())
	}
}

func same(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
