package host

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
)

// Images that containers mount: of two layers, of one, and of none.
const (
	filesImage = "example.com/files:1"
	flatImage  = "example.com/flat:1"
	emptyImage = "example.com/empty:1"
)

// loadFiles brings them to the node. The upper layer of the first has no
// entries for the directories of its files.
func (n *node) loadFiles() *testStore {
	n.t.Helper()
	dir := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	lower := archive(n.t, []tar.Header{
		{Typeflag: tar.TypeDir, Name: "dir", Mode: 0o1751, Uid: 33, Gid: 34}, dir("bin"),
		{Name: "dir/file", Mode: 0o640, Uid: 33, Gid: 34}, {Name: "gone"},
		{Name: "bin/tool", Mode: 0o755}, link("inside", "dir"), link("absolute", "/etc"), link("up", "../../../../etc"),
		{Typeflag: tar.TypeDir, Name: "shut", Mode: 0o600},
		{Typeflag: tar.TypeDir, Name: "shut/in", Mode: 0o2750, Uid: 33, Gid: 34},
		link("dir/climbs", "../../../../../../etc/passwd"), link("proc", "/proc/1/root"),
	}, map[string]string{"dir/file": "below\n", "gone": "x", "bin/tool": "#!/bin/sh\necho runs\n"})
	upper := archive(n.t, []tar.Header{{Name: "dir/over"}, {Name: "shut/in/over"}, {Name: ".wh.gone"}},
		map[string]string{"dir/over": "above\n"})
	config := func(layers ...[]byte) string {
		var ids []string
		for _, l := range layers {
			ids = append(ids, fmt.Sprintf(`"sha256:%x"`, sha256.Sum256(l)))
		}
		return fmt.Sprintf(`{"architecture":%q,"os":"linux","rootfs":{"type":"layers","diff_ids":[%s]}}`, runtime.GOARCH,
			strings.Join(ids, ","))
	}
	files := []tar.Header{{Name: "manifest.json"}, {Name: "files.json"}, {Name: "flat.json"}, {Name: "empty.json"},
		{Name: "lower.tar"}, {Name: "upper.tar"}}
	store := n.cfg.OCI.Images.(*testStore)
	n.t.Cleanup(func() { // So that the directory of the test can be removed.
		closed, err := filepath.Glob(filepath.Join(store.dir, "*", "*", "fs", "shut"))
		for _, dir := range closed {
			err = errors.Join(err, os.Chmod(dir, 0o700))
		}
		if err != nil {
			n.t.Error(err)
		}
	})
	if _, err := store.Load(n.t.Context(), bytes.NewReader(archive(n.t, files, map[string]string{
		"manifest.json": `[{"Config":"files.json","RepoTags":["` + filesImage + `"],"Layers":["lower.tar","upper.tar"]},` +
			`{"Config":"flat.json","RepoTags":["` + flatImage + `"],"Layers":["lower.tar"]},` +
			`{"Config":"empty.json","RepoTags":["` + emptyImage + `"],"Layers":[]}]`,
		"files.json": config(lower, upper), "flat.json": config(lower), "empty.json": config(),
		"lower.tar": string(lower), "upper.tar": string(upper),
	}))); err != nil {
		n.t.Fatal(err)
	}
	return store
}

// change changes what a container is made of.
type change = func(*runtimeapi.ContainerConfig)

// mounting has a container mount a part of an image, all of it where that is empty.
func mounting(image, part, at string) change {
	return func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: at, Readonly: true, ImageSubPath: part,
			Image: &runtimeapi.ImageSpec{Image: image}})
	}
}

// withMountedImages does something on a node that can mount overlays, and on one where images are copied; each time
// with the machine's users, and with users of a pod's own.
func withMountedImages(t *testing.T, do func(t *testing.T, n *node, sandbox string, as change)) {
	both := func(t *testing.T, n *node) {
		n.loadFiles()
		do(t, n, n.sandbox("pod"), func(*runtimeapi.ContainerConfig) {})
		if os.Geteuid() == 0 {
			users := usersFrom(firstTestID)
			do(t, n, n.userSandbox("own", users), as(users))
		}
		n.removeAll()
		n.leftNoMounts()
		if roots, err := n.cfg.OCI.Images.(*testStore).Roots(); err != nil || len(roots) > 0 {
			t.Errorf("roots are left: %v, %v", roots, err)
		}
	}
	t.Run("overlay", func(t *testing.T) {
		t.Parallel()
		both(t, newNode(t, withImages(t)))
	})
	t.Run("copy", func(t *testing.T) {
		t.Parallel()
		both(t, newNode(t, withImagesIn(t, filepath.Join(onOverlay(t), "images"))))
	})
}

// A container reads the files of images that it mounts, and runs them; it cannot write to them. A part of an image is
// a directory or a file of it, found by links that stay inside.
//
// spec: CTR-6, VOL-1, SEC-1, USER-1
func TestRootImageMounted(t *testing.T) {
	t.Parallel()
	withMountedImages(t, func(t *testing.T, n *node, sandbox string, as change) {
		owner := "33:34"
		if os.Geteuid() != 0 {
			owner = "0:0" // As all files of images are without root.
		}
		said(t, n.attack(sandbox, "reads", `cd /all; cat dir/file dir/over; stat -c '%a %u:%g' dir/file dir shut/in; ls gone
/all/bin/tool
touch new; echo x >dir/over; rm dir/file; chmod 777 dir/file; chown 5:5 dir/file
mount -o remount,rw /all && echo remounted
cat /part/over; cat /file; ls /linked; ls /flat | wc -l; ls -A /none | wc -l
grep -c -E ' /(all|part|file|linked|flat|none) ro' /proc/self/mountinfo`,
			mounting(filesImage, "", "/all"), mounting(filesImage, "dir", "/part"), mounting(filesImage, "dir/over", "/file"),
			mounting(filesImage, "inside", "/linked"), mounting(flatImage, "", "/flat"), mounting(emptyImage, "", "/none"), as),
			"below\nabove\n640 "+owner+"\n1751 "+owner+"\n2750 "+owner+"\nls: gone: No such file or directory\nruns\n"+
				"touch: new: Read-only file system\n"+
				"/bin/sh: can't create dir/over: Read-only file system\n"+
				"rm: can't remove 'dir/file': Read-only file system\n"+
				"chmod: dir/file: Read-only file system\n"+
				"chown: dir/file: Read-only file system\n"+
				"mount: permission denied (are you root?)\n"+
				"above\nabove\nclimbs\nfile\nover\n8\n0\n6")
	})
}

// A privileged container cannot change an image either: another container finds it as it was.
//
// spec: VOL-1, SEC-1
func TestRootImageMountedPrivileged(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	n.loadFiles()
	sb := n.sandbox("pod")
	privileged := func(c *runtimeapi.ContainerConfig) { c.Linux.SecurityContext.Privileged = true }
	got := n.attack(sb, "writes", "mount -o remount,rw,bind /all; mount -o remount,rw /all; echo x >/all/dir/over; true",
		mounting(filesImage, "", "/all"), privileged)
	if !strings.Contains(got, "Read-only file system") {
		t.Errorf("it says %s", got)
	}
	said(t, n.attack(sb, "reads", "cat /all/dir/over", mounting(filesImage, "", "/all")), "above")
	n.removeAll()
	n.leftNoMounts()
}

// A part that leads out of its image by a link, or that the image does not have, fails the start with the reason; one
// that does so by its name fails the creation, as what makes no sense does. Nothing is left.
//
// spec: VOL-1, SEC-1
func TestRootImageMountedEscapes(t *testing.T) {
	t.Parallel()
	withMountedImages(t, func(t *testing.T, n *node, sandbox string, as change) {
		for i, c := range []struct{ part, want string }{
			{"absolute", `the path "absolute" leads out of "` + filesImage + `"`},
			{"up", `leads out of`}, {"dir/climbs", `leads out of`}, {"proc/etc", `leads out of`},
			{"gone", `the path "gone" below "` + filesImage + `": no such file or directory`},
			{"dir/file/x", "not a directory"},
		} {
			config := victim(fmt.Sprint("c", i), "true")
			mounting(filesImage, c.part, "/part")(config)
			as(config)
			id := n.create(sandbox, config)
			if err := n.start(id); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.part, err, c.want)
			}
			if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128 {
				t.Errorf("%s: %v", c.part, st)
			}
		}
		for i, c := range []struct {
			mount *runtimeapi.Mount
			want  string
		}{
			{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: filesImage}, ImageSubPath: "../x"}, "leads out"},
			{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: filesImage}, HostPath: "/etc"}, "both"},
			{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: filesImage},
				Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}, "bidirectional"},
			{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "example.com/none:1"}}, "none:1"},
			{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: ImageName}}, "this machine itself"},
		} {
			config := victim(fmt.Sprint("wrong", i), "true")
			c.mount.ContainerPath = "/part"
			config.Mounts = append(config.Mounts, c.mount)
			as(config)
			_, err := n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: config})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, want %q", c.mount, err, c.want)
			}
		}
	})
}

// A container of image "host" cannot mount images.
//
// spec: VOL-1
func TestRootImageMountedByHost(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	n.loadFiles()
	config := containerConfig("c", "true")
	mounting(filesImage, "", "/all")(config)
	_, err := n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: n.sandbox("pod"),
		Config: config})
	if err == nil || !strings.Contains(err.Error(), "containers of other images can have it") {
		t.Errorf("%v", err)
	}
}

// An image that a container mounts stays until the container is removed, whoever asks for its removal and whether or
// not the runtime was started anew meanwhile; and the container goes on reading it.
//
// spec: CTR-6, SAFE-5
func TestRootImageMountedIsHeld(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	store := n.loadFiles()
	config := victim("c", "sleep", "1000")
	mounting(filesImage, "", "/all")(config)
	id := n.run(n.sandbox("pod"), config)
	remove := func() error {
		_, err := n.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: filesImage}})
		return err
	}
	for _, step := range []func(){func() {}, n.reopen, func() { n.stop(id, 0) }} {
		step()
		want := fmt.Sprintf("is in use: container %s has it as a volume", id)
		if err := remove(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("its removal says %v, want %q", err, want)
		}
		if n.status(id).GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"cat", "/all/dir/over"}})
		if err != nil || string(out.GetStdout()) != "above\n" {
			t.Errorf("it reads %v, %v", out, err)
		}
		if err := store.Remove(t.Context(), flatImage); err != nil && !errors.Is(err, images.ErrNotFound) {
			t.Errorf("what shares a layer with it cannot be removed: %v", err)
		}
	}
	if mounts := n.status(id).GetMounts(); len(mounts) != 1 || mounts[0].GetImage().GetImage() != filesImage {
		t.Errorf("its status has the mounts %v", mounts)
	}
	if _, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	n.removeAll()
	n.leftNoMounts()
}

// What containers have written goes when their sandbox is stopped, in which none can be started again, and so can
// their image; what is told of them stays.
func TestRootImageStopGivesRootBack(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	store := n.loadFiles()
	sb := n.sandbox("pod")
	ended := n.run(sb, ofImage(containerConfig("ended", "/bin/sh", "-c", "echo >/data/new; exit 3")))
	n.wait(ended)
	n.create(sb, ofImage(containerConfig("created", "/bin/true")))
	n.run(sb, ofImage(containerConfig("running", "sleep", "1000")))
	id := n.status(ended).GetImageId()
	if roots, err := store.Roots(); err != nil || len(roots) < 2 {
		t.Fatalf("roots before: %v, %v", roots, err)
	}
	if err := store.Remove(t.Context(), id); !errors.Is(err, images.ErrInUse) {
		t.Errorf("the image of what runs is removed: %v", err)
	}
	if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	if roots, err := store.Roots(); err != nil || len(roots) > 0 {
		t.Errorf("roots after: %v, %v", roots, err)
	}
	if err := store.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	for _, step := range []func(){func() {}, n.reopen} {
		step()
		if st := n.status(ended); st.GetExitCode() != 3 || st.GetImageId() != id {
			t.Errorf("what is told of it: %v", st)
		}
		if _, err := n.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: ended}); err != nil {
			t.Error(err)
		}
	}
	n.removeAll()
	n.leftNoMounts()
}

// onOverlay makes an overlay, on which no other can be mounted, and returns where it is.
func onOverlay(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "overlay"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	overlay := filepath.Join(dir, "overlay")
	if err := unix.Mount("overlay", overlay, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,"+
		"workdir=%[1]s/work", dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, overlay) })
	return overlay
}
