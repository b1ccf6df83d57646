package podspec

import (
	"strings"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

func (f *faults) csi(p *validation.Path, c *corev1.CSIVolumeSource) {
	f.DriverName(p.Child("driver"), c.GetDriver())
	if ref := c.GetNodePublishSecretRef(); ref != nil {
		if ref.GetName() == "" {
			f.Required(p.Child("nodePublishSecretRef").Child("name"), "")
			return
		}
		f.Subdomain(p.Child("name"), ref.GetName())
	}
}

// keyFiles checks the files that hold keys of a Secret or ConfigMap.
func (f *faults) keyFiles(p *validation.Path, mode *int32, items []*corev1.KeyToPath) {
	f.mode(p.Child("defaultMode"), mode)
	f.keyItems(p, items)
}

func (f *faults) keyItems(p *validation.Path, items []*corev1.KeyToPath) {
	for i, item := range items {
		at := p.Child("items").Index(i)
		if item.GetKey() == "" {
			f.Required(at.Child("key"), "")
		}
		f.filePath(at.Child("path"), item.GetPath())
		if item != nil {
			f.mode(at.Child("mode"), item.Mode)
		}
	}
}

// filePath checks the path of a file inside a volume.
func (f *faults) filePath(p *validation.Path, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	f.Inside(p, name)
	if strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../") {
		f.Invalid(p, name, "must not start with '..'")
	}
}

const maxMode = 0o777

func (f *faults) mode(p *validation.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > maxMode) {
		f.InvalidValue(p, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// downwardFile checks a file that shows a field of the pod (DOWN-2). The faults name the volume rather
// than the item, as in Kubernetes.
func (f *faults) downwardFile(p *validation.Path, file *corev1.DownwardAPIVolumeFile) {
	f.filePath(p.Child("path"), file.GetPath())
	switch {
	case file.GetFieldRef() != nil:
		f.fieldRef(p.Child("fieldRef"), file.GetFieldRef(), fileFields)
		if file.GetResourceFieldRef() != nil {
			f.Invalid(p, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.GetResourceFieldRef() != nil:
		f.resourceFieldRef(p.Child("resourceFieldRef"), file.GetResourceFieldRef(), true)
	default:
		f.Required(p, "one of fieldRef and resourceFieldRef is required")
	}
	if file != nil {
		f.mode(p.Child("mode"), file.Mode)
	}
}

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// projected checks a volume put together from several sources: no two may claim the same path. Trust
// bundles and pod certificates are refused by their support option.
func (f *faults) projected(p *validation.Path, s *corev1.ProjectedVolumeSource) {
	taken := map[string]bool{}
	take := func(name, shown string) {
		if name != "" && taken[name] {
			f.Invalid(p, shown, "conflicting duplicate paths")
		}
		taken[name] = true
	}
	for i, source := range s.GetSources() {
		at, n := p.Child("sources").Index(i), 0
		if c := source.GetSecret(); c != nil {
			n++
			f.projectedKeys(at.Child("secret"), c.GetLocalObjectReference().GetName(), c.GetItems(), take)
		}
		if c := source.GetConfigMap(); c != nil {
			n++
			f.projectedKeys(at.Child("configMap"), c.GetLocalObjectReference().GetName(), c.GetItems(), take)
		}
		if d := source.GetDownwardAPI(); d != nil {
			n++
			for _, file := range d.GetItems() {
				f.downwardFile(at.Child("downwardAPI"), file)
				take(file.GetPath(), file.GetPath())
			}
		}
		if t := source.GetServiceAccountToken(); t != nil {
			n++
			f.token(p, at.Child("serviceAccountToken"), t)
		}
		if n > 1 {
			f.Forbidden(at, "may not specify more than 1 volume type per source")
		}
	}
}

func (f *faults) projectedKeys(
	p *validation.Path, name string, items []*corev1.KeyToPath, take func(name, shown string),
) {
	if name == "" {
		f.Required(p.Child("name"), "")
	}
	f.keyItems(p, items)
	for _, item := range items {
		take(item.GetPath(), name)
	}
}

func (f *faults) token(volume, p *validation.Path, t *corev1.ServiceAccountTokenProjection) {
	if s := t.GetExpirationSeconds(); s < minTokenSeconds {
		f.InvalidValue(p.Child("expirationSeconds"), s, "may not specify a duration less than 10 minutes")
	} else if s > maxTokenSeconds {
		f.InvalidValue(p.Child("expirationSeconds"), s, "may not specify a duration larger than 2^32 seconds")
	}
	f.filePath(volume.Child("path"), t.GetPath())
}
