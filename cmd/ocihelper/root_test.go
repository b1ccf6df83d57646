//go:build linux && cgo

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// alone runs a function in a mount namespace of its own, as the helper is run, whose mounts go with it.
func alone(t *testing.T, do func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // For good: the thread ends with this function.
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// expect returns an error if a file does not have a text.
func expect(path, want string) error {
	text, err := os.ReadFile(path)
	if err == nil && string(text) != want {
		err = fmt.Errorf("%s has %q, not %q", path, text, want)
	}
	return err
}

// Directories and files alike can be mounted both ways.
func TestRootSharedMounts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "src/file"), "text")
	alone(t, func() error {
		b := &bundle{Shared: []int{1, 0}, Spec: &specs.Spec{Mounts: []specs.Mount{
			{Source: filepath.Join(dir, "src")}, {Source: filepath.Join(dir, "src/file")}}}}
		if err := b.takeShared(filepath.Join(dir, "shared")); err != nil {
			return err
		}
		if err := b.placeShared(); err != nil {
			return err
		}
		m := b.Spec.Mounts
		if m[1].Source != filepath.Join(dir, "shared/0") || m[0].Source != filepath.Join(dir, "shared/1") {
			return fmt.Errorf("%v", m)
		}
		return errors.Join(expect(m[1].Source, "text"), expect(m[0].Source+"/file", "text"))
	})
}

// A part of a mount is below its source when it is found, whatever links there are, or it is none.
func TestRootParts(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	write(t, filepath.Join(src, "sub/file"), "text")
	write(t, filepath.Join(dir, "secret"), "secret")
	for name, to := range map[string]string{"inside": "sub/../sub", "up": "../secret", "absolute": dir + "/secret",
		"root": "/", "magic": "/proc/self/root", "loop": "loop", "nothing": "none"} {
		if err := os.Symlink(to, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	alone(t, func() (errs error) {
		for sub, want := range map[string]string{"sub": "", "sub/file": "", "inside/file": "", ".": "",
			"up": "leads out of", "absolute": "leads out of", "root/etc": "leads out of", "magic": "leads out of",
			"loop": "leads out of", "../secret": "leads out of", "/": "leads out of", "sub/../../secret": "leads out of",
			"none": "no such file", "nothing": "no such file", "sub/file/x": "not a directory"} {
			b := &bundle{Parts: map[int]string{0: sub}, Images: map[int]files{0: {Name: "nginx"}},
				Spec: &specs.Spec{Mounts: []specs.Mount{{Source: src}}}}
			err := b.placeParts(filepath.Join(dir, "parts", strings.ReplaceAll(sub, "/", "_")))
			if want == "" && err == nil && strings.HasSuffix(sub, "file") {
				err = expect(b.Spec.Mounts[0].Source, "text")
			}
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), `"nginx"`)) {
				errs = errors.Join(errs, fmt.Errorf("%s: %w, want %q", sub, err, want))
			}
		}
		return errs
	})
}

// Layers are stacked in their order by the kernel's new calls as by the old one, by which paths with what separates
// options are names as others, and layers that do not fit are refused with their number.
func TestRootOverlay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `od:d,\`)
	for _, name := range []string{"top/a", "bottom/a", "bottom/b"} {
		write(t, filepath.Join(dir, name), name)
	}
	for _, name := range []string{"at", "upper", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(dir, "at")
	layers := []string{dir + "/top", dir + "/bottom"}
	for name, mount := range map[string]func(overlay, string) error{"new": overlay.mount, "old": overlay.mountOld} {
		alone(t, func() error {
			err := mount(overlay{layers: layers, upper: dir + "/upper", work: dir + "/work"}, at)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := errors.Join(expect(at+"/a", "top/a"), expect(at+"/b", "bottom/b"),
				os.WriteFile(at+"/"+name, nil, 0o600)); err != nil {
				return err
			}
			_, err = os.Stat(filepath.Join(dir, "upper", name))
			return err
		})
		alone(t, func() error { // Without upper nobody writes.
			if err := mount(overlay{layers: layers}, at); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := os.WriteFile(at+"/x", nil, 0o600); !errors.Is(err, unix.EROFS) {
				return fmt.Errorf("%s: written to an image: %w", name, err)
			}
			return nil
		})
		alone(t, func() error {
			err := mount(overlay{layers: []string{dir + "/none", dir + "/top"}}, at)
			if err == nil || !strings.Contains(err.Error(), "no such file") {
				return fmt.Errorf("%s: a layer that does not exist: %w", name, err)
			}
			return nil
		})
	}
	alone(t, func() error {
		err := overlay{layers: make([]string, 0), upper: dir + "/none", work: dir + "/none"}.mountOld(at)
		if err == nil || !strings.HasPrefix(err.Error(), "the overlay of 0 layers cannot be mounted: ") {
			return fmt.Errorf("no layers: %w", err)
		}
		var many overlay
		for range os.Getpagesize() / 2 {
			many.layers = append(many.layers, dir)
		}
		if err := many.mountOld(at); err == nil || !strings.Contains(err.Error(), "too many layers for this kernel: ") {
			return fmt.Errorf("too many layers: %w", err)
		}
		return nil
	})
}

// Images that are mounted are read-only where they have several layers, and are told by name where they cannot be.
func TestRootImages(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "one/a"), "one")
	write(t, filepath.Join(dir, "two/a"), "two")
	alone(t, func() error {
		b := &bundle{Images: map[int]files{0: {Layers: []string{dir + "/one"}},
			1: {Layers: []string{dir + "/two", dir + "/one"}}}, Spec: &specs.Spec{Mounts: make([]specs.Mount, 2)}}
		if err := b.placeImages(filepath.Join(dir, "images")); err != nil {
			return err
		}
		return errors.Join(expect(b.Spec.Mounts[0].Source+"/a", "one"), expect(b.Spec.Mounts[1].Source+"/a", "two"))
	})
	for want, has := range map[string]files{
		`the mount of image "nginx" at "/at": the description of the container: no layers`: {Name: "nginx"},
		`the mount of image "nginx" at "/at": bind /none: no such file or directory`: {Name: "nginx",
			Layers: []string{"/none"}},
		`the mount of image "nginx" at "/at": the pod's user namespace: open /none: no such file or directory`: {
			Name: "nginx", Layers: []string{"/none", "/none"}},
	} {
		alone(t, func() error {
			b := &bundle{Users: "/none", Images: map[int]files{0: has},
				Spec: &specs.Spec{Mounts: []specs.Mount{{Destination: "/at"}}}}
			if err := b.placeImages(filepath.Join(dir, "images")); err == nil || err.Error() != want {
				return fmt.Errorf("%w, want %s", err, want)
			}
			return nil
		})
	}
	alone(t, func() error {
		b := &bundle{Images: map[int]files{1: {}}, Spec: &specs.Spec{Mounts: make([]specs.Mount, 1)}}
		if err := b.placeImages(filepath.Join(dir, "images")); err == nil ||
			err.Error() != "the description of the container: there is no mount 1" {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
}

// A volume that the image declares has what the image has there, as it is: owners, modes, times, attributes, devices,
// and names that are one file. Links on the way do not lead out of the image, and what is no directory is told.
func TestRootVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files to others takes root")
	}
	dir := t.TempDir()
	root, volume := filepath.Join(dir, "root"), filepath.Join(dir, "volume")
	data := filepath.Join(root, "var/data")
	write(t, data+"/deep/a", "text")
	write(t, root+"/file", "")
	when := []unix.Timespec{{Sec: 1000}, {Sec: 2000, Nsec: 5}}
	for _, err := range []error{
		os.Link(data+"/deep/a", data+"/b"),
		os.Symlink("/etc/shadow", data+"/link"),
		os.Symlink("/var", root+"/way"),
		os.Symlink(strings.Repeat("../", 20)+"var", root+"/climbs"),
		os.Symlink("/loop", root+"/loop"),
		unix.Mknod(data+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mkfifo(data+"/pipe", 0o600),
		os.Chown(data+"/deep/a", 33, 34), os.Lchown(data+"/link", 35, 36), os.Chown(data, 37, 38),
		os.Chmod(data+"/deep/a", 0o755|os.ModeSetuid), os.Chmod(data, 0o710|os.ModeSticky),
		unix.UtimesNanoAt(unix.AT_FDCWD, data+"/link", when, unix.AT_SYMLINK_NOFOLLOW),
		unix.UtimesNanoAt(unix.AT_FDCWD, data, when, 0),
		os.Mkdir(volume, 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	marked := unix.Setxattr(data+"/deep/a", "user.mood", []byte("good"), 0) == nil
	fill := func(place, to string) error {
		b := &bundle{Volumes: map[int]string{0: to}, UIDs: []specs.LinuxIDMapping{{ContainerID: 1, HostID: 5, Size: 1},
			{HostID: 1000, Size: 1}}, GIDs: []specs.LinuxIDMapping{{HostID: 2000, Size: 1}},
			Spec: &specs.Spec{Mounts: []specs.Mount{{Destination: place}}}}
		err := b.fillVolumes(root)
		if err == nil && b.Spec.Mounts[0].Source != to {
			err = fmt.Errorf("the container mounts %q", b.Spec.Mounts[0].Source)
		}
		return err
	}
	if err := fill("/climbs/data", volume); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".", "deep", "deep/a", "b", "link", "null", "pipe"} {
		var was, is unix.Stat_t
		err := errors.Join(unix.Lstat(filepath.Join(data, name), &was), unix.Lstat(filepath.Join(volume, name), &is))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if was.Mode != is.Mode || was.Uid != is.Uid || was.Gid != is.Gid || was.Rdev != is.Rdev ||
			was.Mtim != is.Mtim || name != "." && name != "deep" && was.Nlink != is.Nlink {
			t.Errorf("%s was\n%+v and is\n%+v", name, was, is)
		}
	}
	value := make([]byte, 10)
	n, err := unix.Getxattr(volume+"/b", "user.mood", value)
	if marked && (err != nil || string(value[:n]) != "good") {
		t.Errorf("%q, %v", value[:max(n, 0)], err)
	}
	if err := expect(volume+"/b", "text"); err != nil {
		t.Error(err)
	}
	for place, want := range map[string]string{"/file": "something else there than a directory",
		"/loop": "too many levels", "/file/below": "not a directory"} {
		err := fill(place, filepath.Join(dir, "other"))
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("the volume %q that the image declares: ", place)) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", place, err, want)
		}
	}
	// Where the image has nothing, the volume is the root's of the container.
	if err := fill("/none", volume); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(volume, &st); err != nil || st.Uid != 1000 || st.Gid != 2000 {
		t.Errorf("%+v, %v", st, err)
	}
}

// A mount with other ids needs a file system that can map them, which is named where it cannot.
func TestRootMappingIsRefused(t *testing.T) {
	alone(t, func() error {
		users, err := os.Open("/proc/self/ns/user") // The machine's own, which maps nothing.
		if err != nil {
			return err
		}
		defer users.Close()
		err = place("/proc", filepath.Join(t.TempDir(), "proc"), users, false)
		if err == nil || !strings.Contains(err.Error(), "/proc is on a file system (proc) that cannot map ids") {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
}

// Without the pod's namespace there is no shared memory, which is told.
func TestShmThatIsNotThere(t *testing.T) {
	b := &bundle{Spec: &specs.Spec{Mounts: []specs.Mount{{Source: "/"}, {Source: sharedMemory}}}}
	if err := (command{}).placeShm(b); err == nil || err.Error() != "the pod has no shared memory" {
		t.Errorf("%v", err)
	}
	b.Spec.Mounts = b.Spec.Mounts[:1]
	if err := (command{}).placeShm(b); err != nil {
		t.Error(err)
	}
}
