package podstate

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
)

// Facts are what the runtime says of an instance beyond how far it has come. They are only passed on.
type Facts struct {
	// StopSignal ends the container, such as "SIGTERM"; empty when the runtime does not say.
	StopSignal string
	// User is the identity of its first process, nil when the runtime does not say.
	User *corev1.ContainerUser
	// RecursiveReadOnly are the paths of the mounts below which everything is read-only.
	RecursiveReadOnly []string
	// Images are those that are mounted, as the runtime calls them, by the paths of their mounts.
	Images map[string]string
}

// stateFacts puts into the status of container i what is known of its instance, and how its volumes are mounted.
// spec: LIFE-9
func (m *StateMachine) stateFacts(s *corev1.ContainerStatus, i int) {
	f := m.containers[i].Facts
	if f == nil {
		f = &Facts{}
	}
	if f.StopSignal != "" {
		s.StopSignal = &f.StopSignal
	}
	s.User = f.User
	mounts := m.spec(i).GetVolumeMounts()
	if len(mounts) == 0 {
		return
	}
	s.VolumeMounts = make([]*corev1.VolumeMountStatus, len(mounts))
	for k, at := range mounts {
		v := &corev1.VolumeMountStatus{Name: at.GetName(), MountPath: at.GetMountPath(), ReadOnly: at.GetReadOnly()}
		if at.GetReadOnly() {
			how := "Disabled"
			if at.GetRecursiveReadOnly() == "Enabled" || slices.Contains(f.RecursiveReadOnly, at.GetMountPath()) {
				how = "Enabled"
			}
			v.RecursiveReadOnly = &how
		}
		if ref := f.Images[at.GetMountPath()]; ref != "" {
			v.VolumeStatus = &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: ref}}
		}
		s.VolumeMounts[k] = v
	}
}
