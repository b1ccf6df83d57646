package defaults

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	fileMode     = 0o644
	tokenSeconds = 3600
)

func volumes(list []*corev1.Volume) {
	for _, v := range list {
		if v == nil {
			continue
		}
		if empty(v.VolumeSource) {
			v.VolumeSource = &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
		volumeSource(v.VolumeSource)
	}
}

func empty(s *corev1.VolumeSource) bool {
	none := true
	s.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		none = false
		return false
	})
	return none
}

func volumeSource(s *corev1.VolumeSource) {
	if h := s.HostPath; h != nil {
		setPtr(&h.Type, "")
	}
	if c := s.Secret; c != nil {
		setPtr(&c.DefaultMode, fileMode)
	}
	if c := s.ConfigMap; c != nil {
		setPtr(&c.DefaultMode, fileMode)
	}
	if d := s.DownwardAPI; d != nil {
		setPtr(&d.DefaultMode, fileMode)
		for _, f := range d.Items {
			fieldRef(f.GetFieldRef())
		}
	}
	if i := s.Image; i != nil {
		set(&i.PullPolicy, pullPolicy(i.Reference))
	}
	if p := s.Projected; p != nil {
		setPtr(&p.DefaultMode, fileMode)
		for _, source := range p.Sources {
			for _, f := range source.GetDownwardAPI().GetItems() {
				fieldRef(f.GetFieldRef())
			}
			if t := source.GetServiceAccountToken(); t != nil {
				setPtr(&t.ExpirationSeconds, tokenSeconds)
			}
		}
	}
}
