package podspec

import (
	"monoplane.dev/apiserver/defaults"

	corev1 "monoplane.dev/api/core/v1"
)

// rbd is what Ceph block devices in pods and persistent volumes have in common, as far as it has defaults.
type rbd struct{ pool, user, keyring *string }

// defaultDrivers fills in a volume of a pod whose driver was once part of Kubernetes.
func defaultDrivers(s *corev1.VolumeSource) {
	if i := s.Iscsi; i != nil {
		defaults.Set(&i.IscsiInterface, iscsiInterface)
	}
	if r := s.Rbd; r != nil {
		rbd{&r.Pool, &r.User, &r.Keyring}.fill()
	}
	azureDisk(s.AzureDisk)
	if c := s.ScaleIO; c != nil {
		defaults.Set(&c.StorageMode, thin)
		defaults.Set(&c.FsType, scaleIOFilesystem)
	}
}

// DefaultPersistentDrivers fills in a persistent volume in the same way.
func DefaultPersistentDrivers(s *corev1.PersistentVolumeSource) {
	if i := s.Iscsi; i != nil {
		defaults.Set(&i.IscsiInterface, iscsiInterface)
	}
	if r := s.Rbd; r != nil {
		rbd{&r.Pool, &r.User, &r.Keyring}.fill()
	}
	azureDisk(s.AzureDisk)
	if c := s.ScaleIO; c != nil {
		defaults.Set(&c.StorageMode, thin)
		defaults.Set(&c.FsType, scaleIOFilesystem)
	}
}

const (
	iscsiInterface    = "default"
	thin              = "ThinProvisioned"
	scaleIOFilesystem = "xfs"
)

func (r rbd) fill() {
	defaults.Set(r.pool, "rbd")
	defaults.Set(r.user, "admin")
	defaults.Set(r.keyring, "/etc/ceph/keyring")
}

func azureDisk(d *corev1.AzureDiskVolumeSource) {
	if d == nil {
		return
	}
	defaults.SetPtr(&d.CachingMode, "ReadWrite")
	defaults.SetPtr(&d.FsType, "ext4")
	defaults.SetPtr(&d.ReadOnly, false)
	defaults.SetPtr(&d.Kind, "Shared")
}
