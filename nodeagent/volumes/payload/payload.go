// Package payload computes the files of the volumes that the agent writes itself: which there are, with what content,
// mode and owner, given the objects they come from. It is pure: no I/O and no clock.
//
// The results, the messages of errors included, are those of Kubernetes' node agent (test/oracle compares them).
package payload

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
)

// File is a file of a volume.
type File struct {
	// Data is its content. Nobody changes it.
	Data []byte
	// Mode holds the permission bits.
	Mode int32
	// Owner is the user that the file is given to, nil for the agent's own.
	Owner *int64
}

// Payload holds the files of a volume by their paths in it.
type Payload map[string]File

// defaultMode is what the API server puts where no mode is given.
const defaultMode int32 = 0o644

func modeOf(mode *int32, missing int32) int32 {
	if mode == nil {
		return missing
	}
	return *mode
}

// ConfigMap returns the files for keys of a config map: those of items, all when there are none. A key of items that
// does not exist is an error unless optional is set.
func ConfigMap(cm *corev1.ConfigMap, items []*corev1.KeyToPath, mode *int32, optional bool) (Payload, error) {
	missing := modeOf(mode, defaultMode)
	files := make(Payload, len(cm.GetData())+len(cm.GetBinaryData()))
	if len(items) == 0 {
		for key, text := range cm.GetData() {
			files[key] = File{Data: []byte(text), Mode: missing}
		}
		for key, data := range cm.GetBinaryData() {
			files[key] = File{Data: data, Mode: missing}
		}
		return files, nil
	}
	for _, item := range items {
		data, ok := cm.GetBinaryData()[item.GetKey()]
		if text, isText := cm.GetData()[item.GetKey()]; isText {
			data, ok = []byte(text), true
		}
		if !ok && optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("configmap references non-existent config key: %s", item.GetKey())
		}
		files[item.GetPath()] = File{Data: data, Mode: modeOf(item.Mode, missing)}
	}
	return files, nil
}

// Secret returns the files for keys of a secret: those of items, all when there are none. A key of items that does not
// exist is an error unless optional is set.
func Secret(s *corev1.Secret, items []*corev1.KeyToPath, mode *int32, optional bool) (Payload, error) {
	missing := modeOf(mode, defaultMode)
	files := make(Payload, len(s.GetData()))
	if len(items) == 0 {
		for key, data := range s.GetData() {
			files[key] = File{Data: data, Mode: missing}
		}
		return files, nil
	}
	for _, item := range items {
		data, ok := s.GetData()[item.GetKey()]
		if !ok && optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("references non-existent secret key: %s", item.GetKey())
		}
		files[item.GetPath()] = File{Data: data, Mode: modeOf(item.Mode, missing)}
	}
	return files, nil
}

// Sources are what the files of a volume come from, besides the pod.
type Sources struct {
	// ConfigMap and Secret return an object of the pod's namespace, or an error of package apierrors.
	ConfigMap func(name string) (*corev1.ConfigMap, error)
	// Secret is as ConfigMap.
	Secret func(name string) (*corev1.Secret, error)
	// Token returns a token for the pod's service account.
	Token func(p *corev1.ServiceAccountTokenProjection) (string, error)
	// Node are the facts of the node that downward files tell.
	Node Node
}

// FromConfigMap returns the files of a config map that is read by its name. One that does not exist is empty when
// optional is set.
func (s Sources) FromConfigMap(name string, items []*corev1.KeyToPath, mode *int32, optional bool) (Payload, error) {
	cm, err := s.ConfigMap(name)
	switch {
	case optional && apierrors.Is(err, apierrors.NotFound):
		cm = nil
	case apierrors.Is(err, apierrors.NotFound):
		return nil, fmt.Errorf("configmap %q not found", name)
	case err != nil:
		return nil, err
	}
	return ConfigMap(cm, items, mode, optional)
}

// FromSecret returns the files of a secret that is read by its name. One that does not exist is empty when optional is
// set.
func (s Sources) FromSecret(name string, items []*corev1.KeyToPath, mode *int32, optional bool) (Payload, error) {
	secret, err := s.Secret(name)
	switch {
	case optional && apierrors.Is(err, apierrors.NotFound):
		secret = nil
	case apierrors.Is(err, apierrors.NotFound):
		return nil, fmt.Errorf("secret %q not found", name)
	case err != nil:
		return nil, err
	}
	return Secret(secret, items, mode, optional)
}

// Projected returns the files of several sources in one directory; a later source wins. All that is wrong is in the
// error, not the first fault alone.
func Projected(p *corev1.Pod, v *corev1.ProjectedVolumeSource, s Sources) (Payload, error) {
	files := make(Payload)
	var wrong []error
	for _, source := range v.GetSources() {
		some, err := s.projection(p, source, v.DefaultMode)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		for name, file := range some {
			files[name] = file
		}
	}
	if len(wrong) > 0 {
		return nil, join(wrong)
	}
	return files, nil
}

func (s Sources) projection(p *corev1.Pod, v *corev1.VolumeProjection, mode *int32) (Payload, error) {
	switch {
	case v.GetSecret() != nil:
		from := v.GetSecret()
		return s.FromSecret(from.GetLocalObjectReference().GetName(), from.GetItems(), mode, from.GetOptional())
	case v.GetConfigMap() != nil:
		from := v.GetConfigMap()
		return s.FromConfigMap(from.GetLocalObjectReference().GetName(), from.GetItems(), mode, from.GetOptional())
	case v.GetDownwardAPI() != nil:
		return Downward(p, v.GetDownwardAPI().GetItems(), mode, s.Node)
	case v.GetServiceAccountToken() != nil:
		from := v.GetServiceAccountToken()
		token, err := s.Token(from)
		if err != nil {
			return nil, err
		}
		file := File{Data: []byte(token), Mode: modeOf(mode, defaultMode), Owner: Owner(p)}
		if file.Owner != nil || FSGroup(p) != nil {
			file.Mode = 0o600 // a group that owns the volume may read it too: see package ownership
		}
		return Payload{from.GetPath(): file}, nil
	case v.GetClusterTrustBundle() != nil:
		return nil, errors.New("the source clusterTrustBundle is not supported: the server has no cluster trust bundles")
	case v.GetPodCertificate() != nil:
		return nil, errors.New("the source podCertificate is not supported: the server signs no pod certificates")
	default:
		return nil, nil
	}
}

// Owner returns the user that all containers of the pod run as, nil when they differ or one does not say.
func Owner(p *corev1.Pod) *int64 {
	var owner, general *int64
	if of := p.GetSpec().GetSecurityContext(); of != nil {
		general = of.RunAsUser
	}
	for _, c := range every(p) {
		user := general
		if own := c.GetSecurityContext(); own != nil && own.RunAsUser != nil {
			user = own.RunAsUser
		}
		if user == nil || owner != nil && *owner != *user {
			return nil
		}
		owner = user
	}
	return owner
}

// FSGroup returns the group that the pod's volumes are given to, nil for none.
func FSGroup(p *corev1.Pod) *int64 {
	if of := p.GetSpec().GetSecurityContext(); of != nil {
		return of.FsGroup
	}
	return nil
}

// every returns the containers that start with the pod.
func every(p *corev1.Pod) []*corev1.Container {
	spec := p.GetSpec()
	all := make([]*corev1.Container, 0, len(spec.GetInitContainers())+len(spec.GetContainers()))
	return append(append(all, spec.GetContainers()...), spec.GetInitContainers()...)
}

// join words several errors as Kubernetes does: each once.
func join(all []error) error {
	var texts []string
	for _, err := range all {
		if !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	if len(texts) == 1 {
		return all[0]
	}
	return errors.New("[" + strings.Join(texts, ", ") + "]")
}

// clean returns a path in a volume in its shortest form.
func clean(name string) string { return path.Clean(name) }
