package podspec

import (
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

func (f *faults) env(p *validation.Path, vars []*corev1.EnvVar) {
	for i, v := range vars {
		at := p.Index(i)
		if v.GetName() == "" {
			f.Required(at.Child("name"), "")
		} else {
			f.Invalid(at.Child("name"), v.GetName(), utilvalidation.IsRelaxedEnvVarName(v.GetName())...)
		}
		if v.GetValueFrom() != nil {
			f.valueFrom(at.Child("valueFrom"), v)
		}
	}
}

func (f *faults) valueFrom(p *validation.Path, v *corev1.EnvVar) {
	from, sources := v.GetValueFrom(), 0
	if ref := from.GetFieldRef(); ref != nil {
		sources++
		f.fieldRef(p.Child("fieldRef"), ref, envFields)
	}
	if ref := from.GetResourceFieldRef(); ref != nil {
		sources++
		f.resourceFieldRef(p.Child("resourceFieldRef"), ref, false)
	}
	if ref := from.GetConfigMapKeyRef(); ref != nil {
		sources++
		f.keyRef(p.Child("configMapKeyRef"), ref.GetLocalObjectReference().GetName(), ref.GetKey())
	}
	if ref := from.GetSecretKeyRef(); ref != nil {
		sources++
		f.keyRef(p.Child("secretKeyRef"), ref.GetLocalObjectReference().GetName(), ref.GetKey())
	}
	if ref := from.GetFileKeyRef(); ref != nil {
		sources++
		f.fileKeyRef(p.Child("fileKeyRef"), ref)
	}
	switch {
	case sources == 0:
		f.Invalid(p, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "+
			"`secretKeyRef` or `fileKeyRef`")
	case v.GetValue() != "":
		f.Invalid(p, "", "may not be specified when `value` is not empty")
	case sources > 1:
		f.Invalid(p, "", "may not have more than one field specified at a time")
	}
}

// keyRef checks a reference to a key of a ConfigMap or Secret.
func (f *faults) keyRef(p *validation.Path, name, key string) {
	f.Subdomain(p.Child("name"), name)
	if key == "" {
		f.Required(p.Child("key"), "")
		return
	}
	f.Invalid(p.Child("key"), key, utilvalidation.IsConfigMapKey(key)...)
}

func (f *faults) fileKeyRef(p *validation.Path, ref *corev1.FileKeySelector) {
	if ref.GetKey() == "" {
		f.Required(p.Child("key"), "")
	} else {
		f.Invalid(p.Child("key"), ref.GetKey(), utilvalidation.IsRelaxedEnvVarName(ref.GetKey())...)
	}
	f.RequiredLabel(p.Child("volumeName"), ref.GetVolumeName())
	if ref.GetPath() == "" {
		f.Required(p.Child("path"), "")
		return
	}
	f.NoBacksteps(p.Child("path"), ref.GetPath())
}

// fileKeyVolumes checks that variables are read only from emptyDir volumes.
func (v *Checker) fileKeyVolumes() {
	var sources map[string]*corev1.VolumeSource
	for c, at := range v.each {
		for i, e := range c.GetEnv() {
			ref := e.GetValueFrom().GetFileKeyRef()
			if ref == nil {
				continue
			}
			if sources == nil {
				sources = make(map[string]*corev1.VolumeSource, len(v.spec.GetVolumes()))
				for _, vol := range v.spec.GetVolumes() {
					sources[vol.GetName()] = vol.GetVolumeSource()
				}
			}
			p := at.Child("env").Index(i).Child("valueFrom").Child("fileKeyRef").Child("volumeName")
			if source, ok := sources[ref.GetVolumeName()]; !ok {
				v.NotFound(p, ref.GetVolumeName())
			} else if source.GetEmptyDir() == nil {
				v.Invalid(p, ref.GetVolumeName(), "referenced volume must be of type emptyDir")
			}
		}
	}
}

func (f *faults) envFrom(p *validation.Path, sources []*corev1.EnvFromSource) {
	for i, s := range sources {
		at := p.Index(i)
		if s.GetPrefix() != "" {
			f.Invalid(at.Child("prefix"), s.GetPrefix(), utilvalidation.IsRelaxedEnvVarName(s.GetPrefix())...)
		}
		n := 0
		if ref := s.GetConfigMapRef(); ref != nil {
			n++
			f.objectName(at.Child("configMapRef").Child("name"), ref.GetLocalObjectReference().GetName())
		}
		if ref := s.GetSecretRef(); ref != nil {
			n++
			f.objectName(at.Child("secretRef").Child("name"), ref.GetLocalObjectReference().GetName())
		}
		switch {
		case n == 0:
			f.Invalid(p, "", "must specify one of: `configMapRef` or `secretRef`")
		case n > 1:
			f.Invalid(p, "", "may not have more than one field specified at a time")
		}
	}
}

// objectName checks the name of a ConfigMap or Secret that a whole environment is read from. Kubernetes
// accepts a dash at its end here.
func (f *faults) objectName(p *validation.Path, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	f.Invalid(p, name, validation.NameIsSubdomain(name, true)...)
}

// The fields of a pod that variables and files can hold (DOWN-1), in the order of the messages.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	fileFields = []string{
		"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	}
	// podFields are all fields that can be named; a use may allow fewer.
	podFields = []string{
		"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
		"status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
)

func (f *faults) fieldRef(p *validation.Path, ref *corev1.ObjectFieldSelector, allowed []string) {
	at := p.Child("fieldPath")
	switch {
	case ref.GetApiVersion() == "":
		f.Required(p.Child("apiVersion"), "")
		return
	case ref.GetFieldPath() == "":
		f.Required(at, "")
		return
	case ref.GetApiVersion() != "v1":
		f.Invalid(at, ref.GetFieldPath(),
			"error converting fieldPath: unsupported pod version: "+ref.GetApiVersion())
		return
	}
	name, key, keyed := subscript(ref.GetFieldPath())
	if keyed {
		switch name {
		case "metadata.annotations":
			f.Invalid(p, strings.ToLower(key), validation.WrongQualifiedName(strings.ToLower(key))...)
		case "metadata.labels":
			f.Qualified(p, key)
		default:
			f.Invalid(at, ref.GetFieldPath(),
				"error converting fieldPath: field label does not support subscript: "+ref.GetFieldPath())
		}
		return
	}
	if name == "spec.host" { // The name of spec.nodeName before v1.
		name = "spec.nodeName"
	}
	if !slices.Contains(podFields, name) {
		f.Invalid(at, ref.GetFieldPath(), "error converting fieldPath: field label not supported: "+name)
		return
	}
	f.OneOf(at, name, allowed...)
}

// subscript splits "metadata.labels['key']" into its name and key.
func subscript(path string) (name, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	name, key, ok = strings.Cut(inner, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, key, true
}
