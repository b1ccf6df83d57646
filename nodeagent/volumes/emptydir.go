package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/volumes/mount"
	"monoplane.dev/rules/resources"
)

// emptyDir is a new directory on disk, in memory or of huge pages, that lives as long as the pod.
type emptyDir struct{ m *Manager }

// memoryMedium is the medium of an emptyDir in memory.
const memoryMedium = "Memory"

const emptyDirName = "kubernetes.io~empty-dir"

// EmptyDir returns where an emptyDir volume of a pod is, given the pod's directory.
func EmptyDir(home, volume string) string {
	return filepath.Join(home, volumesDir, emptyDirName, volume)
}

func (emptyDir) name() string                   { return emptyDirName }
func (emptyDir) is(v *corev1.VolumeSource) bool { return v.GetEmptyDir() != nil }

func (e emptyDir) setUp(ctx context.Context, v *volume) (place, error) {
	if err := os.MkdirAll(v.dir, 0o750); err != nil {
		return place{}, err
	}
	mounted, err := mount.Is(v.dir)
	if err != nil {
		return place{}, err
	}
	at := place{Path: v.dir}
	if !mounted {
		if at.OnDisk, err = e.mount(v); err != nil {
			return place{}, err
		}
	}
	if at.OnDisk || v.source.GetEmptyDir().GetMedium() == "" {
		at.Project = e.bound(v)
		at.Held = at.Project != 0
	}
	// Whatever the agent's umask: users of all containers may write.
	if err := os.Chmod(v.dir, 0o777); err != nil {
		return at, err
	}
	return at, v.give(ctx, v.dir, false)
}

// mount mounts what the volume is to be of, and tells whether that is the disk where it was to be memory.
func (e emptyDir) mount(v *volume) (onDisk bool, err error) {
	switch medium := v.source.GetEmptyDir().GetMedium(); {
	case medium == "":
		return false, nil
	case medium == memoryMedium:
		return e.mountMemory(v)
	case strings.HasPrefix(medium, "HugePages"):
		return false, mountHugePages(v)
	default:
		return false, fmt.Errorf("unknown storage medium %q", medium)
	}
}

// mountMemory leaves the volume on disk where the agent may not mount, which is told once. It stays there with what it
// holds, even if the agent comes back and may.
func (e emptyDir) mountMemory(v *volume) (onDisk bool, err error) {
	rec, err := v.m.readRecord(v.home)
	if err != nil {
		return false, err
	}
	if rec.Volumes[v.name].OnDisk {
		return true, nil
	}
	err = mount.Tmpfs(v.dir, memorySize(v.pod, v.source.GetEmptyDir(), e.m.cfg.Allocatable()))
	if errors.Is(err, mount.ErrNotPermitted) {
		e.m.cfg.NotEnforced(v.pod, fmt.Sprintf("emptyDir volume %q is on disk instead of in memory: %v", v.name, err))
		return true, nil
	}
	return false, err
}

// memorySize returns how large a volume in memory may get: what its limit says, but no more than the pod may use, nor
// than the node has for pods; 0 when nothing is known.
func memorySize(p *corev1.Pod, v *corev1.EmptyDirVolumeSource, allocatable resources.List) int64 {
	most := int64(0)
	lower := func(q resource.Quantity) {
		if n := q.Value(); n > 0 && (most == 0 || n < most) {
			most = n
		}
	}
	if q, ok := allocatable.Get(resources.Memory); ok {
		lower(q)
	}
	limited := !slices.ContainsFunc(p.GetSpec().GetContainers(), func(c *corev1.Container) bool {
		return c.GetResources().GetLimits()[resources.Memory] == nil
	})
	if q, ok := resources.ContainerLimits(p.GetSpec()).Get(resources.Memory); ok && limited {
		lower(q)
	}
	if q, ok := resources.ListOf(p.GetSpec().GetResources().GetLimits()).Get(resources.Memory); ok {
		lower(q)
	}
	if q, err := resource.ParseQuantity(v.GetSizeLimit().GetString_()); err == nil {
		lower(q)
	}
	return most
}

// mountHugePages mounts pages of the size that the medium says, else of the one size that the pod asks for. It holds
// what the pod asks for of them, and no more than its limit.
func mountHugePages(v *volume) error {
	amounts := resources.Requests(v.pod.GetSpec())
	name := ""
	if _, size, ok := strings.Cut(v.source.GetEmptyDir().GetMedium(), "-"); ok {
		name = resources.HugePagesPrefix + size
	}
	for _, amount := range amounts {
		if !resources.IsHugePages(amount.Name) || amount.Quantity.IsZero() || name == amount.Name {
			continue
		}
		if v.source.GetEmptyDir().GetMedium() != "HugePages" {
			continue
		}
		if name != "" {
			return fmt.Errorf("medium HugePages is ambiguous: the pod asks for %s and %s; say HugePages-<size>", name,
				amount.Name)
		}
		name = amount.Name
	}
	if name == "" {
		return fmt.Errorf("any huge page medium needs a container that asks for huge pages")
	}
	page, err := resource.ParseQuantity(strings.TrimPrefix(name, resources.HugePagesPrefix))
	if err != nil {
		return fmt.Errorf("medium %q: %w", v.source.GetEmptyDir().GetMedium(), err)
	}
	asked, ok := amounts.Get(name)
	if !ok {
		return fmt.Errorf("medium %q: no container asks for %s", v.source.GetEmptyDir().GetMedium(), name)
	}
	size := asked.Value()
	if limit, err := resource.ParseQuantity(v.source.GetEmptyDir().GetSizeLimit().GetString_()); err == nil &&
		limit.Value() > 0 {
		size = min(size, limit.Value())
	}
	return mount.HugePages(v.dir, page.Value(), size)
}
