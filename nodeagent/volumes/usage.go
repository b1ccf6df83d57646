package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
)

// Limited reports whether the pod has a volume on disk whose size is limited, so that it is to be measured. In memory
// the kernel keeps the limit.
func Limited(p *corev1.Pod) bool {
	for _, v := range p.GetSpec().GetVolumes() {
		if _, ok := limitOf(v); ok {
			return true
		}
	}
	return false
}

func limitOf(v *corev1.Volume) (resource.Quantity, bool) {
	from := v.GetVolumeSource().GetEmptyDir()
	if from.GetMedium() != "" || from.GetSizeLimit() == nil {
		return resource.Quantity{}, false
	}
	limit, err := resource.ParseQuantity(from.GetSizeLimit().GetString_())
	return limit, err == nil && limit.Sign() > 0
}

// OverLimit says which of the pod's volumes holds more than it may, in the words of Kubernetes; nothing when none
// does.
func (m *Manager) OverLimit(ctx context.Context, p *corev1.Pod) (string, error) {
	home := m.home(p.GetMetadata().GetUid())
	for _, v := range p.GetSpec().GetVolumes() {
		limit, ok := limitOf(v)
		if !ok {
			continue
		}
		used, err := usage(ctx, filepath.Join(home, volumesDir, emptyDir{}.name(), v.GetName()))
		if err != nil {
			return "", err
		}
		if used > limit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.GetName(), limit.String()), nil
		}
	}
	return "", nil
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
	rec, err := readRecord(m.home(p.GetMetadata().GetUid()))
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

// usage returns how many bytes of its disk a directory takes. It follows no links, and counts a file of several names
// once; what is not there takes nothing.
func usage(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	const blockSize = 512
	sum := int64(0)
	linked := make(map[uint64]bool)
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || path == "." {
			return ifThere(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ifThere(err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || linked[stat.Ino] {
			return nil
		}
		if stat.Nlink > 1 && !info.IsDir() {
			linked[stat.Ino] = true
		}
		sum += stat.Blocks * blockSize
		return nil
	})
	return sum, err
}

// ifThere drops the error about what a container has removed meanwhile.
func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
