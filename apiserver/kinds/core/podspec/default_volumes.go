package podspec

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/claimspec"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	defaultFileMode     = 0o644
	defaultTokenSeconds = 3600
)

func defaultVolumes(list []*corev1.Volume) {
	for _, v := range list {
		if v == nil {
			continue
		}
		if empty(v.VolumeSource) {
			v.VolumeSource = &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
		defaultVolumeSource(v.VolumeSource)
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

func defaultVolumeSource(s *corev1.VolumeSource) {
	defaultDrivers(s)
	if t := s.GetEphemeral().GetVolumeClaimTemplate(); t != nil {
		defaults.Message(&t.Metadata)
		defaults.Message(&t.Spec)
		claimspec.Default(t.Spec)
	}
	if h := s.HostPath; h != nil {
		defaults.SetPtr(&h.Type, "")
	}
	if c := s.Secret; c != nil {
		defaults.SetPtr(&c.DefaultMode, defaultFileMode)
	}
	if c := s.ConfigMap; c != nil {
		defaults.SetPtr(&c.DefaultMode, defaultFileMode)
	}
	if d := s.DownwardAPI; d != nil {
		defaults.SetPtr(&d.DefaultMode, defaultFileMode)
		for _, f := range d.Items {
			defaultFieldRef(f.GetFieldRef())
		}
	}
	if i := s.Image; i != nil {
		defaults.Set(&i.PullPolicy, pullPolicy(i.Reference))
	}
	if p := s.Projected; p != nil {
		defaults.SetPtr(&p.DefaultMode, defaultFileMode)
		for _, source := range p.Sources {
			for _, f := range source.GetDownwardAPI().GetItems() {
				defaultFieldRef(f.GetFieldRef())
			}
			if t := source.GetServiceAccountToken(); t != nil {
				defaults.SetPtr(&t.ExpirationSeconds, defaultTokenSeconds)
			}
		}
	}
}
