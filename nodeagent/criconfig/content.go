package criconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/rules/downward"
	podlevel "monoplane.dev/rules/resources"
)

// Content is what variables are made of besides the pod: what is looked up when a container's environment needs it. A
// function that is nil finds nothing.
type Content struct {
	// ConfigMap returns a ConfigMap of the pod's namespace; the error is of package apierrors.
	ConfigMap func(name string) (*corev1.ConfigMap, error)
	// Secret returns a Secret of the pod's namespace; the error is of package apierrors.
	Secret func(name string) (*corev1.Secret, error)
	// File returns a file of a volume of the pod; fs.ErrNotExist when there is none.
	File func(volume, path string) ([]byte, error)
	// Allocatable is what pods can have of the node.
	Allocatable func() podlevel.List
	// Services returns the Services of the pod's namespace, in the order of their names.
	Services func() ([]*corev1.Service, error)
	// API is where the API server listens; not valid when that is not known.
	API netip.AddrPort
	// APIService is where pods with a network of their own reach it, if it is valid.
	APIService netip.AddrPort
}

// values reads what the variables of one container come from. Each object is looked up once.
type values struct {
	p *corev1.Pod
	c *corev1.Container
	f Facts

	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

// all sets the variables that a source of envFrom brings, in the order of their names.
func (v *values) all(from *corev1.EnvFromSource, e *environment) error {
	switch {
	case from.GetConfigMapRef() != nil:
		m, err := v.configMap(from.GetConfigMapRef().GetLocalObjectReference().GetName())
		if m == nil {
			return unless(from.GetConfigMapRef().GetOptional(), err)
		}
		for _, key := range slices.Sorted(maps.Keys(m.GetData())) {
			e.set(from.GetPrefix()+key, m.GetData()[key])
		}
	case from.GetSecretRef() != nil:
		s, err := v.secret(from.GetSecretRef().GetLocalObjectReference().GetName())
		if s == nil {
			return unless(from.GetSecretRef().GetOptional(), err)
		}
		for _, key := range slices.Sorted(maps.Keys(s.GetData())) {
			e.set(from.GetPrefix()+key, string(s.GetData()[key]))
		}
	}
	return nil
}

// one returns a value; ok is false when it is missing and may be.
func (v *values) one(from *corev1.EnvVarSource) (text string, ok bool, err error) {
	switch {
	case from.GetFieldRef() != nil:
		text, err = podField(v.p, from.GetFieldRef().GetFieldPath(), v.f)
	case from.GetResourceFieldRef() != nil:
		text, err = v.amount(from.GetResourceFieldRef())
	case from.GetConfigMapKeyRef() != nil:
		return v.configMapKey(from.GetConfigMapKeyRef())
	case from.GetSecretKeyRef() != nil:
		return v.secretKey(from.GetSecretKeyRef())
	case from.GetFileKeyRef() != nil:
		return v.fileKey(from.GetFileKeyRef())
	}
	return text, err == nil, err
}

func (v *values) configMapKey(ref *corev1.ConfigMapKeySelector) (text string, ok bool, err error) {
	name := ref.GetLocalObjectReference().GetName()
	m, err := v.configMap(name)
	if m == nil {
		return "", false, unless(ref.GetOptional(), err)
	}
	text, ok = m.GetData()[ref.GetKey()]
	if !ok && !ref.GetOptional() {
		err = fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.GetKey(), v.p.GetMetadata().GetNamespace(), name)
	}
	return text, ok, err
}

func (v *values) secretKey(ref *corev1.SecretKeySelector) (text string, ok bool, err error) {
	name := ref.GetLocalObjectReference().GetName()
	s, err := v.secret(name)
	if s == nil {
		return "", false, unless(ref.GetOptional(), err)
	}
	data, ok := s.GetData()[ref.GetKey()]
	if !ok && !ref.GetOptional() {
		err = fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.GetKey(), v.p.GetMetadata().GetNamespace(), name)
	}
	return string(data), ok, err
}

func (v *values) fileKey(ref *corev1.FileKeySelector) (text string, ok bool, err error) {
	if v.f.Content.File == nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.GetVolumeName())
	}
	content, err := v.f.Content.File(ref.GetVolumeName(), ref.GetPath())
	if errors.Is(err, fs.ErrNotExist) && ref.GetOptional() {
		return "", false, nil
	}
	if err == nil {
		text, err = fileKey(content, ref.GetKey())
	}
	switch {
	case err != nil:
		return "", false, fmt.Errorf("couldn't parse env file: %w", err)
	case text == "" && !ref.GetOptional():
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.GetKey(), ref.GetPath())
	}
	return text, text != "", nil
}

// amount returns a request or limit. A container without a limit is limited by what its pod can have of the node; an
// init container that is named is not, as in Kubernetes.
func (v *values) amount(ref *corev1.ResourceFieldSelector) (string, error) {
	var node podlevel.List
	if v.f.Content.Allocatable != nil {
		node = downward.Node(v.p.GetSpec(), v.f.Content.Allocatable())
	}
	c := v.c
	if name := ref.GetContainerName(); name != "" {
		var err error
		if c, err = downward.Container(v.p.GetSpec(), name); err != nil {
			return "", err
		}
		if slices.Contains(v.p.GetSpec().GetInitContainers(), c) {
			node = nil
		}
	}
	return downward.Amount(c, ref, node)
}

func (v *values) configMap(name string) (*corev1.ConfigMap, error) {
	if m := v.configMaps[name]; m != nil {
		return m, nil
	}
	m, err := find(v.f.Content.ConfigMap, "configmap", name)
	if err == nil {
		if v.configMaps == nil {
			v.configMaps = make(map[string]*corev1.ConfigMap)
		}
		v.configMaps[name] = m
	}
	return m, err
}

func (v *values) secret(name string) (*corev1.Secret, error) {
	if s := v.secrets[name]; s != nil {
		return s, nil
	}
	s, err := find(v.f.Content.Secret, "secret", name)
	if err == nil {
		if v.secrets == nil {
			v.secrets = make(map[string]*corev1.Secret)
		}
		v.secrets[name] = s
	}
	return s, err
}

// errMissing says that an object does not exist.
type errMissing struct{ kind, name string }

// Error returns what Kubernetes' agent says.
func (e errMissing) Error() string { return fmt.Sprintf("%s %q not found", e.kind, e.name) }

// find looks an object up. It returns nil with each error.
func find[T any](lookup func(string) (*T, error), kind, name string) (*T, error) {
	if lookup == nil {
		return nil, errMissing{kind, name}
	}
	o, err := lookup(name)
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		return nil, errMissing{kind, name}
	case err != nil:
		return nil, err
	}
	return o, nil
}

// unless returns err, but nil when the object is missing and may be.
func unless(optional bool, err error) error {
	if missing := (errMissing{}); optional && errors.As(err, &missing) {
		return nil
	}
	return err
}
