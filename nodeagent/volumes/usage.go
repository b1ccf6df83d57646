package volumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
)

// Limited reports whether the pod has a volume that may be on disk and whose size is limited, so that it is to be
// measured.
func Limited(p *corev1.Pod) bool {
	for _, v := range p.GetSpec().GetVolumes() {
		if _, ok := limitOf(v.GetVolumeSource()); ok {
			return true
		}
	}
	return false
}

func limitOf(v *corev1.VolumeSource) (resource.Quantity, bool) {
	from := v.GetEmptyDir()
	if medium := from.GetMedium(); medium != "" && medium != memoryMedium || from.GetSizeLimit() == nil {
		return resource.Quantity{}, false
	}
	limit, err := resource.ParseQuantity(from.GetSizeLimit().GetString_())
	return limit, err == nil && limit.Sign() > 0
}

// OverLimit says which of the pod's volumes holds more than it may, in the words of Kubernetes; nothing when none
// does. In memory the kernel keeps the limit. What cannot be read of one hides nothing of the others.
func (m *Manager) OverLimit(ctx context.Context, p *corev1.Pod) (string, error) {
	var failed []error
	home := m.home(p.GetMetadata().GetUid())
	rec, err := m.readRecord(home)
	if err != nil {
		return "", err
	}
	for _, v := range p.GetSpec().GetVolumes() {
		limit, ok := limitOf(v.GetVolumeSource())
		inMemory := v.GetVolumeSource().GetEmptyDir().GetMedium() == memoryMedium && !rec.Volumes[v.GetName()].OnDisk
		if !ok || inMemory {
			continue
		}
		used, err := m.cfg.Measure(ctx, filepath.Join(home, volumesDir, emptyDir{}.name(), v.GetName()))
		failed = append(failed, err)
		if used.Bytes > limit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.GetName(), limit.String()), nil
		}
	}
	return "", errors.Join(failed...)
}

// Place is a volume of a pod that can be measured.
type Place struct {
	// Name is the volume's in the spec, Claim the name of the claim behind it, empty for none.
	Name, Claim string
	// Path is where it is. What a claim or another machine has brought is a file system; else Files is set, and the
	// volume is the files below Path.
	Path  string
	Files bool
}

// Places returns the volumes of a pod that belong to it: not what the machine has anyway, nor images, nor devices.
func (m *Manager) Places(p *corev1.Pod) ([]Place, error) {
	rec, err := m.readRecord(m.home(p.GetMetadata().GetUid()))
	if err != nil {
		return nil, err
	}
	var out []Place
	for _, v := range p.GetSpec().GetVolumes() {
		at, ok := rec.Volumes[v.GetName()]
		if !ok || at.Path == "" || at.Device || v.GetVolumeSource().GetHostPath() != nil {
			continue
		}
		place := Place{Name: v.GetName(), Path: at.Path, Files: at.Written || v.GetVolumeSource().GetEmptyDir() != nil}
		if c := v.GetVolumeSource().GetPersistentVolumeClaim(); c != nil {
			place.Claim = c.GetClaimName()
		} else if v.GetVolumeSource().GetEphemeral() != nil {
			place.Claim = p.GetMetadata().GetName() + "-" + v.GetName()
		}
		out = append(out, place)
	}
	return out, nil
}
