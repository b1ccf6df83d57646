package host

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What the attacks below have in common: the paths that are mounted while a container is made are the attacker's, by
// an image, or by a volume at /dev, /dev/pts or /proc. Either the container is not made, for that reason, or it has
// what it is meant to have.

// reached is the file that the attacks want to have mounted elsewhere, where it is not read-only.
const reached = "/proc/sys/kernel/core_pattern"

// masks says what is at each masked file, and what can be read there.
const masks = `
for f in kcore keys timer_list latency_stats sched_debug; do
  [ -e /proc/$f ] && echo "mask $f $(stat -c %t:%T /proc/$f) $(head -c 100 /proc/$f)"; done
`

// madeWith makes a container with a directory of the attacker's mounted somewhere, and returns what the container says
// if it is made. If not, the error has to name the reason.
func (n *node) madeWith(config *runtimeapi.ContainerConfig, sandbox, dir, at, reason string) (said string, made bool) {
	n.t.Helper()
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: dir, ContainerPath: at})
	id := n.create(sandbox, config)
	if err := n.start(id); err != nil {
		if !strings.Contains(err.Error(), reason) {
			n.t.Errorf("%s: it is not made for another reason: %v", config.GetMetadata().GetName(), err)
		}
		return "", false
	}
	n.wait(id)
	return strings.ReplaceAll(strings.ReplaceAll(n.logText(id), "stdout F ", ""), "\r", ""), true
}

// wantMasks checks what a container says of its masks: each is the null device, in which nothing is.
func wantMasks(t testing.TB, name, said string) {
	t.Helper()
	count := 0
	for line := range strings.Lines(said) {
		is, isMask := strings.CutPrefix(strings.TrimSpace(line), "mask ")
		if !isMask {
			continue
		}
		if count++; !strings.HasSuffix(is, " 1:3") {
			t.Errorf("%s: a mask is none: %s", name, is)
		}
	}
	if count == 0 {
		t.Errorf("%s: it says of no mask: %s", name, said)
	}
}

// swap exchanges two files for one another, again and again, until the function that it returns is called.
func swap(t testing.TB, one, other string) (stop func()) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil && !isClosed(end) {
			err = unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		}
		ended <- err
	}()
	return func() {
		t.Helper()
		close(end)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// A path is masked by the null device, or the container is not made: whatever the image, a volume, or a device that
// the pod asks for has in the null device's place, also if it is there for a moment only (CVE-2025-31133).
//
// spec: SEC-1
func TestRootEscapeNull(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	const reason = "/dev/null"
	link := func(to string) func(string) error {
		return func(at string) error { return os.Symlink(to, at) }
	}
	for name, place := range map[string]func(at string) error{
		"link": link(reached), "link-nowhere": link("/none"), "link-zero": link("zero"),
		"file":      func(at string) error { return os.WriteFile(at, []byte("not masked"), 0o666) },
		"directory": func(at string) error { return os.Mkdir(at, 0o755) },
		"fifo":      func(at string) error { return unix.Mkfifo(at, 0o666) },
		"nothing":   func(string) error { return nil },
	} {
		dir := t.TempDir()
		if err := place(filepath.Join(dir, "null")); err != nil {
			t.Fatal(err)
		}
		if said, made := n.madeWith(victim(name, "/bin/sh", "-c", masks), sb, dir, "/dev", reason); made {
			wantMasks(t, name, said)
		}
	}
	device := victim("device", "/bin/sh", "-c", masks)
	device.Devices = []*runtimeapi.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/null", Permissions: "rw"}}
	if said, made := n.madeWith(device, sb, t.TempDir(), "/beside", reason); made {
		wantMasks(t, "device", said)
	}
	image := victim("image", "/bin/sh", "-c", masks)
	image.Image.Image = n.imageWith([]tar.Header{{Typeflag: tar.TypeDir, Name: "dev", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "dev/null", Linkname: reached}})
	if said, made := n.madeWith(image, sb, t.TempDir(), "/beside", "no reason"); made {
		wantMasks(t, "image", said)
	}
	if os.Geteuid() == 0 { // Others cannot make the device with which a container is made.
		n.escapeNullRace(sb, reason)
	}
	n.removeAll()
	n.leftNoMounts()
}

func (n *node) escapeNullRace(sb, reason string) {
	t := n.t
	t.Helper()
	dir := t.TempDir()
	null, link := filepath.Join(dir, "null"), filepath.Join(dir, "link")
	if err := unix.Mknod(null, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	said, made := n.madeWith(victim("right", "/bin/sh", "-c", masks), sb, dir, "/dev", reason)
	if !made {
		t.Fatal("not even with the null device a container is made")
	}
	wantMasks(t, "right", said)
	if err := os.Symlink(reached, link); err != nil {
		t.Fatal(err)
	}
	stop := swap(t, null, link)
	defer stop()
	count := 0
	const tries = 15
	for i := range tries {
		name := fmt.Sprint("race", i)
		// While it is made, other paths below /dev may be looked for, and standard descriptors opened anew.
		if said, made := n.madeWith(victim(name, "/bin/sh", "-c", masks), sb, dir, "/dev", reason); made {
			count++
			wantMasks(t, name, said)
		}
	}
	t.Logf("%d of %d containers were made", count, tries)
}

// The terminal of a container is mounted at /dev/console and nowhere else, and nothing else is mounted there, whatever
// a volume has in the place of either (CVE-2025-52565).
//
// spec: SEC-1, CTR-7
func TestRootEscapeConsole(t *testing.T) {
	t.Parallel()
	console, race, terminals := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dev := range []string{console, race} {
		if os.Geteuid() == 0 {
			withTerminals(t, dev)
		}
	}
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	before := settings(t)
	try := func(name, dir, at, reason string) (made bool) {
		t.Helper()
		config := victim(name, "/bin/sh", "-c", "echo console $(stat -c %t:%T /dev/console); "+
			"grep core_pattern /proc/self/mountinfo && echo mounted; true")
		config.Tty = true
		said, made := n.madeWith(config, sb, dir, at, reason)
		// Terminals of devpts have the number 136, which is 88. A file that is still exchanged for the link may have any
		// of the two names.
		isConsole := strings.Contains(said, "console 88:") || strings.HasPrefix(name, "race")
		if made && (!isConsole || strings.Contains(said, "mounted")) {
			t.Errorf("%s: %s", name, said)
		}
		return made
	}
	if !try("right", t.TempDir(), "/beside", "no reason") {
		t.Fatal("no container with a terminal is made")
	}
	for _, l := range [][2]string{{reached, filepath.Join(console, "console")}, {reached, filepath.Join(terminals, "0")},
		{"/dev/ptmx", filepath.Join(terminals, "ptmx")}} {
		if err := os.Symlink(l[0], l[1]); err != nil {
			t.Fatal(err)
		}
	}
	reason := "/dev/console"
	if os.Geteuid() != 0 {
		reason = "/dev/pts/ptmx" // Its /dev has no terminals, which a user cannot put there.
	}
	if try("console", console, "/dev", reason) {
		t.Error("a terminal is mounted where a link is")
	}
	if try("terminals", terminals, "/dev/pts", "ptmx") {
		t.Error("a link in the place of a terminal is mounted")
	}
	if os.Geteuid() == 0 {
		file, link := filepath.Join(race, "console"), filepath.Join(race, "link")
		err := unix.Mknod(filepath.Join(race, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		if err == nil {
			err = os.WriteFile(file, nil, 0o666)
		}
		if err == nil {
			err = os.Symlink(reached, link)
		}
		if err != nil {
			t.Fatal(err)
		}
		stop := swap(t, file, link)
		defer stop()
		for i := range 10 {
			try(fmt.Sprint("race", i), race, "/dev", "/dev/console")
		}
	}
	if after := settings(t); after != before {
		t.Errorf("the machine has\n%s\nand had\n%s", after, before)
	}
}

// withTerminals gives a directory that is to be a container's /dev terminals of its own.
func withTerminals(t *testing.T, dev string) {
	t.Helper()
	pts := filepath.Join(dev, "pts")
	err := os.Mkdir(pts, 0o755)
	if err == nil {
		err = unix.Mount("devpts", pts, "devpts", 0, "newinstance,ptmxmode=0666")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(pts, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// What is written to /proc while a container is made, such as labels of processes, goes to /proc: no volume and no
// link of an image has another directory in its place (CVE-2025-52881).
//
// spec: SEC-1
func TestRootEscapeProc(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	image := n.imageWith([]tar.Header{{Typeflag: tar.TypeSymlink, Name: "evil", Linkname: "proc"}})
	covers := func(name, at string) {
		t.Helper()
		dir := t.TempDir()
		for _, part := range []string{"marker", "attr/marker", "self/attr/marker", "sys/kernel/marker"} {
			err := os.MkdirAll(filepath.Join(dir, filepath.Dir(part)), 0o755)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, part), nil, 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		config := victim(name, "/bin/sh", "-c", `for d in . self self/attr thread-self thread-self/attr 1 1/attr sys \
  sys/kernel; do [ -e /proc/$d/marker ] && echo "covered /proc/$d"; done; cat /proc/self/comm`)
		config.Image.Image = image
		said, made := n.madeWith(config, sb, dir, at, "/proc")
		if made && said != "cat\n" {
			t.Errorf("%s: with a volume at %s it says %q", name, at, said)
		}
		if made == (at != "/beside") {
			t.Errorf("%s: with a volume at %s it is made: %t", name, at, made)
		}
	}
	for i, at := range []string{"/beside", "/proc", "/proc/self", "/proc/self/attr", "/proc/thread-self/attr",
		"/proc/1/attr", "/proc/sys", "/proc/sys/kernel", "/evil", "/evil/self/attr", "/evil/sys"} {
		covers(fmt.Sprint("c", i), at)
	}
	n.removeAll()
	n.leftNoMounts()
}

// imageWith loads an image that has these files above those of the test's image, and returns its name.
func (n *node) imageWith(headers []tar.Header) string {
	n.t.Helper()
	const name = "example.com/evil:1"
	program, err := os.ReadFile(busyboxPath)
	if err != nil {
		n.t.Fatal(err)
	}
	files := map[string]string{"0.tar": busyboxLayer(n.t, program), "1.tar": string(archive(n.t, headers, nil))}
	files["manifest.json"] = `[{"Config":"config.json","RepoTags":["` + name + `"],"Layers":["0.tar","1.tar"]}]`
	files["config.json"] = fmt.Sprintf(`{"architecture":%q,"os":"linux","rootfs":{"type":"layers",`+
		`"diff_ids":["sha256:%x","sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256([]byte(files["0.tar"])),
		sha256.Sum256([]byte(files["1.tar"])))
	var list []tar.Header
	for _, f := range slices.Sorted(maps.Keys(files)) {
		list = append(list, tar.Header{Name: f})
	}
	store := n.cfg.OCI.Images.(*testStore) //nolint:forcetypeassert // of this package's tests
	if _, err := store.Load(n.t.Context(), bytes.NewReader(archive(n.t, list, files))); err != nil {
		n.t.Fatal(err)
	}
	return name
}
