package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/volumes/mount"
	"monoplane.dev/nodeagent/volumes/subpath"
)

// Container is what a container that is about to be started is given of the pod's volumes.
type Container struct {
	// Mounts are in the order in which the container's manifest has them.
	Mounts []*runtimeapi.Mount
	// Devices are the block devices.
	Devices []*runtimeapi.Device
}

// Starting says which container is about to be started.
type Starting struct {
	// Pod and Container are the container's.
	Pod *corev1.Pod
	// Container is the container's own part of the pod.
	Container *corev1.Container
	// Lookup returns a variable of the container's environment.
	Lookup func(name string) (string, bool)
	// Images are those whose files are volumes that the container mounts, by the names of the volumes: what the runtime
	// calls each after its pull.
	Images map[string]*runtimeapi.ImageSpec
	// RecursiveReadOnly reports whether the runtime can make the mounts below a mount read-only too. It is asked only
	// when a container wants it.
	RecursiveReadOnly func() bool
	// SubPaths reports whether the runtime opens the path that is called ImageSubPath below a HostPath too, and follows
	// no link out of there. It is asked only when the agent itself cannot mount.
	SubPaths func() bool
}

// Mounts returns what a container is given, after SetUp. What a subPath leads to is found anew each time. The error is
// the user's to mend.
func (m *Manager) Mounts(ctx context.Context, s Starting) (given Container, err error) {
	c := s.Container
	if len(c.GetVolumeMounts()) == 0 && len(c.GetVolumeDevices()) == 0 {
		return Container{}, nil
	}
	uid := s.Pod.GetMetadata().GetUid()
	err = m.alone(ctx, uid, "mounting its volumes", func(context.Context) (err error) {
		given, err = m.mounts(s, m.home(uid))
		return err
	})
	if err != nil {
		return Container{}, err
	}
	return given, nil
}

func (m *Manager) mounts(s Starting, home string) (Container, error) {
	rec, err := m.readRecord(home)
	if err != nil {
		return Container{}, err
	}
	var out Container
	var written []bool // by the index of the mount
	c := s.Container
	for i, at := range c.GetVolumeMounts() {
		from, ok := rec.Volumes[at.GetName()]
		if !ok || from.Device {
			return Container{}, fmt.Errorf("cannot find volume %q to mount into container %q", at.GetName(), c.GetName())
		}
		made, err := s.mount(at, from)
		if err != nil {
			return Container{}, err
		}
		sub, err := s.subPath(at)
		if err != nil {
			return Container{}, err
		}
		switch {
		case from.Plugin == image{}.name():
			of := s.Images[at.GetName()]
			if of == nil {
				return Container{}, fmt.Errorf("the image of volume %q was not pulled for container %q", at.GetName(),
					c.GetName())
			}
			made.HostPath, made.Image, made.ImageSubPath = "", of, sub
		case sub != "":
			where := filepath.Join(home, subpathsDir, at.GetName(), c.GetName(), strconv.Itoa(i))
			made.HostPath, err = prepare(from, sub, where)
			if errors.Is(err, mount.ErrNotPermitted) && s.SubPaths != nil && s.SubPaths() {
				made.HostPath, made.ImageSubPath, err = from.Path, filepath.Clean(sub), nil
			}
			if err != nil {
				return Container{}, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w",
					at.GetName(), c.GetName(), err)
			}
		}
		out.Mounts, written = append(out.Mounts, made), append(written, from.Written)
	}
	if err := nest(out.Mounts, written); err != nil {
		return Container{}, err
	}
	for _, at := range c.GetVolumeDevices() {
		from, ok := rec.Volumes[at.GetName()]
		if !ok || !from.Device {
			return Container{}, fmt.Errorf("cannot find volume %q to pass into container %q", at.GetName(), c.GetName())
		}
		allowed := "mrw"
		if from.ReadOnly {
			allowed = "r"
		}
		out.Devices = append(out.Devices, &runtimeapi.Device{
			ContainerPath: at.GetDevicePath(), HostPath: from.Path, Permissions: allowed,
		})
	}
	return out, nil
}

// mount words a mount of the whole volume.
func (s Starting) mount(at *corev1.VolumeMount, from place) (*runtimeapi.Mount, error) {
	made := &runtimeapi.Mount{
		ContainerPath: at.GetMountPath(), HostPath: from.Path, Readonly: at.GetReadOnly() || from.ReadOnly,
	}
	if !filepath.IsAbs(made.ContainerPath) {
		made.ContainerPath = "/" + made.ContainerPath
	}
	switch how := at.GetMountPropagation(); how {
	case "", "None":
	case "HostToContainer":
		made.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case "Bidirectional":
		made.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return nil, fmt.Errorf("invalid MountPropagation mode: %q", how)
	}
	var err error
	made.RecursiveReadOnly, err = s.recursive(at)
	return made, err
}

// recursive reports whether mounts below the mount are to be read-only as well.
func (s Starting) recursive(at *corev1.VolumeMount) (bool, error) {
	how := at.GetRecursiveReadOnly()
	switch {
	case how == "" || how == "Disabled":
		return false, nil
	case !at.GetReadOnly():
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", at.GetName())
	case at.GetMountPropagation() != "" && at.GetMountPropagation() != "None":
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with "+
			"propagation %q", at.GetName(), at.GetMountPropagation())
	}
	can := s.RecursiveReadOnly != nil && s.RecursiveReadOnly()
	if how == "Enabled" && !can {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime",
			at.GetName())
	}
	return can, nil
}

// subPath returns the path in the volume that is to be mounted; empty for all of it.
func (s Starting) subPath(at *corev1.VolumeMount) (string, error) {
	sub := at.GetSubPath()
	if expr := at.GetSubPathExpr(); expr != "" {
		missing := ""
		sub = criconfig.Expand(expr, func(name string) (string, bool) {
			text, ok := s.Lookup(name)
			if !ok && missing == "" {
				missing = name
			}
			return text, ok
		})
		if missing != "" {
			return "", fmt.Errorf("subPathExpr %q of volume %q: missing value for %q", expr, at.GetName(), missing)
		}
	}
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	for part := range strings.SplitSeq(sub, "/") {
		if part == ".." {
			return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
		}
	}
	return sub, nil
}

// prepare shows a path of a volume at a place of the agent's own, which it returns. Containers can change what the
// path leads to at any time; what is shown there stays. Without the privilege to mount it is mount.ErrNotPermitted,
// after what is missing was made.
func prepare(from place, sub, where string) (string, error) {
	opened, err := subpath.Open(from.Path, sub)
	if err != nil {
		return "", err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return "", err
	}
	if err := clear(where); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(where), 0o750); err != nil {
		return "", err
	}
	if info.IsDir() {
		err = os.Mkdir(where, 0o750)
	} else {
		err = os.WriteFile(where, nil, 0o640)
	}
	if err != nil {
		return "", err
	}
	err = mount.Bind(opened, where)
	if errors.Is(err, mount.ErrNotPermitted) {
		if from.Written { // no container can change where the path leads
			return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", opened.Fd()))
		}
		return "", fmt.Errorf("a subPath of a volume that containers can write to needs a mount: %w", err)
	}
	return where, err
}

// nest makes room for the mounts that lie in volumes that only the agent can write to.
func nest(mounts []*runtimeapi.Mount, written []bool) error {
	for _, m := range mounts {
		outer, rest := -1, ""
		for i, other := range mounts {
			r, ok := strings.CutPrefix(filepath.Clean(m.GetContainerPath()), filepath.Clean(other.GetContainerPath())+"/")
			if ok && (outer < 0 || len(r) < len(rest)) {
				outer, rest = i, r
			}
		}
		if outer < 0 || !written[outer] {
			continue
		}
		isDir := true // what an image has there is not known
		if m.GetImage() == nil {
			info, err := os.Stat(filepath.Join(m.GetHostPath(), m.GetImageSubPath()))
			isDir = err != nil || info.IsDir()
		}
		if err := makeRoom(mounts[outer].GetHostPath(), rest, isDir); err != nil {
			return fmt.Errorf("there is no room for the mount at %q: %w", m.GetContainerPath(), err)
		}
	}
	return nil
}

// makeRoom sees to it that a path of a volume is a directory, or a file, for another one to be mounted on. A directory
// takes the place of a key, as with kubelets. A file is not made among the keys' own, whose set is compared.
func makeRoom(volume, path string, isDir bool) error {
	at := filepath.Join(volume, path)
	info, err := os.Stat(at)
	switch {
	case err == nil && isDir && !info.IsDir() && !strings.Contains(path, "/"):
		if err := os.Remove(at); err != nil {
			return err
		}
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if isDir {
		return os.MkdirAll(at, 0o755)
	}
	first, _, _ := strings.Cut(path, "/")
	if _, err := os.Readlink(filepath.Join(volume, first)); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, nil, 0o644)
}

// clear removes what an earlier start of the container left.
func clear(where string) error {
	for {
		mounted, err := mount.Is(where)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !mounted {
			return os.Remove(where)
		}
		if err := mount.Unmount(where); err != nil {
			return err
		}
	}
}
