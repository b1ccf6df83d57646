package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// devices gives the container the devices that it asks for; a privileged one has all of the machine's, too, where it
// asks for no others. Everything else is forbidden to it, but for what every container has, which the helper adds.
func (b *Bundle) devices(in Input) error {
	l := b.Spec.Linux
	l.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
	for _, d := range in.Container.GetDevices() {
		if err := b.device(d.GetHostPath(), d.GetContainerPath(), d.GetPermissions()); err != nil {
			return err
		}
	}
	if !in.Container.GetLinux().GetSecurityContext().GetPrivileged() {
		return nil
	}
	l.Resources.Devices[0].Allow = true
	own := l.Devices
	l.Devices = nil
	if err := b.device("/dev", "/dev", "rwm"); err != nil {
		return err
	}
	l.Devices = append(slices.DeleteFunc(l.Devices, func(d specs.LinuxDevice) bool {
		return slices.ContainsFunc(own, func(o specs.LinuxDevice) bool { return o.Path == d.Path })
	}), own...)
	return nil
}

// notDevices are directories below /dev that each container has of its own.
var notDevices = map[string]bool{"pts": true, "shm": true, "fd": true, "mqueue": true, ".lxc": true,
	".lxd-mounts": true, ".udev": true}

// device adds one device, or all that are below a directory.
func (b *Bundle) device(host, at, access string) error {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return fmt.Errorf("device %q: %w", host, err)
	}
	return filepath.WalkDir(real, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission):
			return nil // It has gone meanwhile, or is nobody's business.
		case err != nil:
			return err
		case e.IsDir() && real == "/dev" && notDevices[e.Name()]:
			return filepath.SkipDir
		case e.IsDir() || e.Name() == "console" && real == "/dev":
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return nil //nolint:nilerr // It has gone meanwhile.
		}
		var kind string
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR:
			kind = "c"
		case unix.S_IFBLK:
			kind = "b"
		default:
			if path == real {
				return fmt.Errorf("device %q is none", host)
			}
			return nil
		}
		rel, _ := filepath.Rel(real, path)
		b.addDevice(kind, filepath.Join(at, rel), access, &st)
		return nil
	})
}

func (b *Bundle) addDevice(kind, at, access string, st *unix.Stat_t) {
	l := b.Spec.Linux
	mode, uid, gid := os.FileMode(st.Mode&0o7777), st.Uid, st.Gid
	major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	l.Devices = append(l.Devices, specs.LinuxDevice{Path: at, Type: kind, Major: major, Minor: minor, FileMode: &mode,
		UID: &uid, GID: &gid})
	l.Resources.Devices = append(l.Resources.Devices, specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major,
		Minor: &minor, Access: access})
}
