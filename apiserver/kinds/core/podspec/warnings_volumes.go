package podspec

import (
	"fmt"
	"strings"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// WarnOfClaim warns of a claim's spec at a path.
func WarnOfClaim(w *validation.Warnings, at *validation.Path, s *corev1.PersistentVolumeClaimSpec) {
	w.WholeBytes(at.Child("resources").Child("requests"), s.GetResources().GetRequests(), "storage")
	w.WholeBytes(at.Child("resources").Child("limits"), s.GetResources().GetLimits(), "storage")
}

// volumes warns of drivers that are no more, and of files of one volume that are in each other's way.
func (w *warnings) volumes(at *validation.Path) {
	for i, v := range w.spec.GetVolumes() {
		s, at := v.GetVolumeSource(), at.Index(i)
		w.OldSource(at, s)
		if t := s.GetEphemeral().GetVolumeClaimTemplate(); t != nil {
			WarnOfClaim(&w.Warnings, at.Child("ephemeral").Child("volumeClaimTemplate").Child("spec"), t.GetSpec())
		}
	}
	for _, v := range w.spec.GetVolumes() {
		s := v.GetVolumeSource()
		if c := s.GetConfigMap(); c != nil {
			w.overlaps(v.GetName(), fmt.Sprintf("ConfigMap %q", c.GetLocalObjectReference().GetName()),
				filesOf("", c.GetItems()))
		}
		if c := s.GetSecret(); c != nil {
			w.overlaps(v.GetName(), fmt.Sprintf("Secret %q", c.GetSecretName()), filesOf("", c.GetItems()))
		}
		if c := s.GetDownwardAPI(); c != nil {
			w.overlaps(v.GetName(), "DownwardAPI", filesOf("", c.GetItems()))
		}
		w.projected(v.GetName(), s.GetProjected())
	}
}

func (w *warnings) projected(name string, v *corev1.ProjectedVolumeSource) {
	var files []file
	for _, s := range v.GetSources() {
		var of []file
		switch {
		case len(s.GetConfigMap().GetItems()) > 0:
			of = filesOf(fmt.Sprintf("ConfigMap %q", s.GetConfigMap().GetLocalObjectReference().GetName()),
				s.GetConfigMap().GetItems())
		case len(s.GetSecret().GetItems()) > 0:
			of = filesOf(fmt.Sprintf("Secret %q", s.GetSecret().GetLocalObjectReference().GetName()), s.GetSecret().GetItems())
		case len(s.GetDownwardAPI().GetItems()) > 0:
			of = filesOf("DownwardAPI", s.GetDownwardAPI().GetItems())
		case s.GetServiceAccountToken() != nil:
			of = []file{{s.GetServiceAccountToken().GetPath(), "ServiceAccountToken"}}
		case s.GetConfigMap() == nil && s.GetSecret() == nil && s.GetDownwardAPI() == nil &&
			s.GetClusterTrustBundle() == nil && s.GetPodCertificate() == nil:
			w.Say("volume %q (Projected) has no sources provided", name)
		}
		files = append(files, of...)
	}
	w.overlaps(name, "Projected", files)
}

// file is a file of a volume: its path, and in a volume of several sources which one of them has it.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

func filesOf[T interface{ GetPath() string }](source string, items []T) []file {
	files := make([]file, len(items))
	for i, item := range items {
		files[i] = file{item.GetPath(), source}
	}
	return files
}

// overlaps warns of files at one path, and of those that lie in what another one is.
func (w *warnings) overlaps(volume, kind string, files []file) {
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
		for _, before := range files[:i] {
			a, b := files[i].path+"/", before.path+"/"
			if a != "/" && b != "/" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
				w.Say("volume %q (%s): overlapping paths: %s with %s", volume, kind, files[i], before)
			}
		}
	}
}
