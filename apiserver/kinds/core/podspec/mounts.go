package podspec

import (
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// mounts checks where a container sees the pod's volumes. Some faults name the list rather than the
// mount, as in Kubernetes.
func (v *Checker) mounts(p *validation.Path, c container) {
	if len(c.GetVolumeMounts()) == 0 {
		return
	}
	deviceNames, devicePaths := map[string]bool{}, map[string]bool{}
	for _, d := range c.GetVolumeDevices() {
		deviceNames[d.GetName()], devicePaths[d.GetDevicePath()] = true, true
	}
	paths := map[string]bool{}
	for i, m := range c.GetVolumeMounts() {
		at := p.Index(i)
		if m.GetName() == "" {
			v.Required(at.Child("name"), "")
		}
		if _, ok := v.volumes[m.GetName()]; !ok {
			v.NotFound(at.Child("name"), m.GetName())
		}
		if m.GetMountPath() == "" {
			v.Required(at.Child("mountPath"), "")
		}
		if paths[m.GetMountPath()] {
			v.Invalid(at.Child("mountPath"), m.GetMountPath(), "must be unique")
		}
		paths[m.GetMountPath()] = true
		if deviceNames[m.GetName()] {
			v.Invalid(at.Child("name"), m.GetName(), "must not already exist in volumeDevices")
		}
		if devicePaths[m.GetMountPath()] {
			v.Invalid(at.Child("mountPath"), m.GetMountPath(), "must not already exist as a path in volumeDevices")
		}
		if m.GetSubPath() != "" {
			v.Inside(p.Child("subPath"), m.GetSubPath())
		}
		if m.GetSubPathExpr() != "" {
			if m.GetSubPath() != "" {
				v.Invalid(at.Child("subPathExpr"), m.GetSubPathExpr(),
					"subPathExpr and subPath are mutually exclusive")
			}
			v.Inside(p.Child("subPathExpr"), m.GetSubPathExpr())
		}
		v.propagation(p, m, c.GetSecurityContext().GetPrivileged())
	}
}

func (v *Checker) propagation(p *validation.Path, m *corev1.VolumeMount, privileged bool) {
	if m == nil {
		return
	}
	if m.MountPropagation != nil {
		at := p.Child("mountPropagation")
		v.OneOf(at, m.GetMountPropagation(), "Bidirectional", "HostToContainer", "None")
		if m.GetMountPropagation() == "Bidirectional" && !privileged {
			v.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers")
		}
	}
	if m.RecursiveReadOnly == nil {
		return
	}
	at := p.Child("recursiveReadOnly")
	v.OneOf(at, m.GetRecursiveReadOnly(), "Disabled", "Enabled", "IfPossible")
	if r := m.GetRecursiveReadOnly(); r != "Enabled" && r != "IfPossible" {
		return
	}
	if !m.GetReadOnly() {
		v.Forbidden(at, "may only be specified when readOnly is true")
	}
	if m.MountPropagation != nil && m.GetMountPropagation() != "None" {
		v.Forbidden(at, "may only be specified when mountPropagation is None or not specified")
	}
}

// devices checks the raw block devices of a container.
func (v *Checker) devices(p *validation.Path, c container) {
	if len(c.GetVolumeDevices()) == 0 {
		return
	}
	mountNames, mountPaths := map[string]bool{}, map[string]bool{}
	for _, m := range c.GetVolumeMounts() {
		mountNames[m.GetName()], mountPaths[m.GetMountPath()] = true, true
	}
	names, paths := map[string]bool{}, map[string]bool{}
	for i, d := range c.GetVolumeDevices() {
		at := p.Index(i)
		name, path := d.GetName(), d.GetDevicePath()
		if name == "" {
			v.Required(at.Child("name"), "")
		}
		if names[name] {
			v.Invalid(at.Child("name"), name, "must be unique")
		}
		names[name] = name != ""
		if source, ok := v.volumes[name]; !ok {
			v.NotFound(at.Child("name"), name)
		} else if source.GetPersistentVolumeClaim() == nil && source.GetEphemeral() == nil {
			v.Invalid(at.Child("name"), name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if path == "" {
			v.Required(at.Child("devicePath"), "")
		}
		if paths[path] {
			v.Invalid(at.Child("devicePath"), path, "must be unique")
		}
		if validation.Backsteps(path) {
			v.Invalid(at.Child("devicePath"), path, "can not contain backsteps ('..')")
		} else {
			paths[path] = true
		}
		if mountNames[name] {
			v.Invalid(at.Child("name"), name, "must not already exist in volumeMounts")
		}
		if mountPaths[path] {
			v.Invalid(at.Child("devicePath"), path, "must not already exist as a path in volumeMounts")
		}
	}
}
