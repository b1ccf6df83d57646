//go:build rootonly

package e2e_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/test/containerd"
)

// ownersImage has files of several users, and a layer that removes some of another one.
const ownersImage = "localhost/owners:1"

// withIDs is a machine whose user has ids beside the own one, as /etc/subuid gives them.
func withIDs(t *testing.T) *machine {
	t.Helper()
	if _, err := exec.LookPath("newuidmap"); err != nil {
		t.Skip("newuidmap is not installed (make deps)")
	}
	m := newMachine(t)
	m.uid = 65534 // newuidmap asks for a user with a name.
	m.ids = filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(m.ids, fmt.Appendf(nil, "%d:1000000:65536\n", m.uid), 0o644); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRootUserOwners runs an image of which some files are not root's, without root and with the ids of /etc/subuid:
// they belong to whom the image says, also those that nobody else may read, where roots are overlays and where they
// are copies. Nothing is left of a container, nor of the image.
//
// spec: CTR-6, USER-1
func TestRootUserOwners(t *testing.T) {
	t.Parallel()
	for name, images := range map[string]func(t *testing.T, u *imageCluster) string{
		"overlay": func(_ *testing.T, u *imageCluster) string { return filepath.Join(u.home, "owners") },
		"copies":  func(t *testing.T, u *imageCluster) string { return filepath.Join(onOverlay(t, u), "images") },
	} {
		t.Run(name, func(t *testing.T) {
			m := withIDs(t)
			u := m.imageCluster(t)
			u.images = images(t, u)
			u.load(t, ownersImage)
			u.begin(t)
			k := u.kubectl(t)
			if out, code := k.run(t, ownersManifest, "apply", "-f", "-"); code != 0 {
				t.Fatal(out)
			}
			k.ok(t, "wait --for=condition=Ready pod/owners pod/as1000 --timeout=2m")
			out, _ := k.run(t, "", "exec", "owners", "--", "sh", "-c", "stat -c '%n %u:%g %a' / /o /o/* /o/secret/in /bin; "+
				"cat /o/closed; ls /o/gone /o/hidden 2>/dev/null; cat /o/secret/key; echo mine >/o/closed; chown 5:6 /o/closed; stat -c %u:%g /o/closed")
			want := `/ 0:0 755
/o 1000:1000 711
/o/beyond 65534:65534 644
/o/closed 1000:1001 600
/o/hidden 0:0 755
/o/link 7:8 777
/o/secret 33:34 700
/o/setuid 1000:0 4755
/o/secret/in 35:36 2750
/bin 0:0 755
closed
/o/hidden:
new
key
5:6
`
			if out != want {
				t.Errorf("the files of a container are\n%s\nwant\n%s", out, want)
			}
			k.until(t, "logs as1000", `^closed\nno\nwritten\n$`)
			copies := len(globbed(t, filepath.Join(u.images, "roots", "*", "copy")))
			if want := map[string]int{"overlay": 0, "copies": 2}[name]; copies != want {
				t.Errorf("%d containers have a copy, want %d", copies, want)
			}
			k.ok(t, "delete pod --all --timeout=2m")
			empty(t, filepath.Join(u.images, "roots"))
			u.down(t)
			if out, err := exec.Command(u.monoplane, "image", "rm", ownersImage, "--image-dir", u.images).
				CombinedOutput(); err != nil {
				t.Errorf("image rm: %v\n%s", err, out)
			}
			empty(t, filepath.Join(u.images, "layers"))
			empty(t, filepath.Join(u.images, "tops"))
			empty(t, filepath.Join(u.images, "tmp"))
		})
	}
}

// onOverlay mounts an overlay, on which no other can be mounted, and returns where that is.
func onOverlay(t *testing.T, u *imageCluster) string {
	t.Helper()
	at := map[string]string{}
	for _, name := range []string{"lower", "upper", "work", "overlay"} {
		at[name] = mine(t, u.machine.uid, filepath.Join(u.home, name))
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", at["lower"], at["upper"], at["work"])
	if err := syscall.Mount("overlay", at["overlay"], "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at["overlay"], syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at["overlay"]
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// empty waits until there is nothing in a directory.
func empty(t *testing.T, dir string) {
	t.Helper()
	err := poll(patience, func() (bool, string) {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
}

// load loads an image of layers: busybox, files of several users, and what removes some of them. The last has no
// entries for the directories of one of its files, which are closed to others than their owners.
func (u *imageCluster) load(t *testing.T, name string) {
	t.Helper()
	base, _, err := containerd.Box()
	if err != nil {
		t.Fatal(err)
	}
	owned := func(uid, gid int, h tar.Header) tar.Header {
		h.Uid, h.Gid = uid, gid
		return h
	}
	files := packed(t, map[string]string{"o/closed": "closed\n", "o/secret/key": "key\n"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/stat", Linkname: "busybox"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/chown", Linkname: "busybox"},
		owned(1000, 1000, tar.Header{Typeflag: tar.TypeDir, Name: "o/", Mode: 0o711}),
		owned(1000, 1001, tar.Header{Name: "o/closed", Mode: 0o600}),
		owned(33, 34, tar.Header{Typeflag: tar.TypeDir, Name: "o/secret/", Mode: 0o700}),
		owned(33, 34, tar.Header{Name: "o/secret/key", Mode: 0o400}),
		owned(35, 36, tar.Header{Typeflag: tar.TypeDir, Name: "o/secret/in/", Mode: 0o2750}),
		owned(1000, 0, tar.Header{Name: "o/setuid", Mode: 0o4755}),
		owned(7, 8, tar.Header{Typeflag: tar.TypeSymlink, Name: "o/link", Linkname: "closed"}),
		owned(1000, 1000, tar.Header{Name: "o/gone", Mode: 0o600}),
		owned(1000, 1000, tar.Header{Typeflag: tar.TypeDir, Name: "o/hidden/", Mode: 0o700}),
		owned(1000, 1000, tar.Header{Name: "o/hidden/old", Mode: 0o600}),
		owned(2000000000, 2000000000, tar.Header{Name: "o/beyond", Mode: 0o644}))
	top := packed(t, nil, owned(1000, 1000, tar.Header{Typeflag: tar.TypeDir, Name: "o/", Mode: 0o711}),
		tar.Header{Name: "o/secret/in/above", Mode: 0o644}, tar.Header{Name: "o/.wh.gone"},
		tar.Header{Typeflag: tar.TypeDir, Name: "o/hidden/", Mode: 0o755},
		tar.Header{Name: "o/hidden/.wh..wh..opq"}, tar.Header{Name: "o/hidden/new", Mode: 0o644})
	u.loadLayers(t, name, base, files, top)
}

// loadLayers loads an image of layers, the lowest first, and returns its id. It sleeps, and declares /data as a
// volume.
func (u *imageCluster) loadLayers(t *testing.T, name string, all ...[]byte) (id string) {
	t.Helper()
	layers := make(map[string]string)
	for i, data := range all {
		layers[fmt.Sprintf("%d.tar", i)] = string(data)
	}
	var digests []string
	var headers []tar.Header
	for _, name := range slices.Sorted(maps.Keys(layers)) {
		digests = append(digests, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(layers[name]))))
		headers = append(headers, tar.Header{Name: name, Mode: 0o644})
	}
	config, err1 := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"sleep", "1000000"},
			"Volumes": map[string]any{"/data": map[string]any{}}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": digests},
	})
	manifest, err2 := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name},
		"Layers": slices.Sorted(maps.Keys(layers))}})
	layers["config.json"], layers["manifest.json"] = string(config), string(manifest)
	for _, name := range []string{"config.json", "manifest.json"} {
		headers = append(headers, tar.Header{Name: name, Mode: 0o644})
	}
	archive := filepath.Join(u.home, "layers.tar")
	if err3 := os.WriteFile(archive, packed(t, layers, headers...), 0o644); err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	out, err := exec.Command(u.monoplane, "image", "load", archive, "--image-dir", u.images).CombinedOutput()
	if err != nil {
		t.Fatalf("image load: %v\n%s", err, out)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(config))
}

// packed is an archive of files, with the contents of those that have any.
func packed(t *testing.T, contents map[string]string, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		text := contents[strings.TrimSuffix(h.Name, "/")]
		h.Size = int64(len(text))
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const ownersManifest = `
apiVersion: v1
kind: Pod
metadata: {name: owners}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'localhost/owners:1'}]
---
apiVersion: v1
kind: Pod
metadata: {name: as1000}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000}
  containers:
  - name: c
    image: localhost/owners:1
    command:
    - sh
    - -c
    - cat /o/closed; cat /o/secret/key 2>/dev/null || echo no; echo written >/o/new; cat /o/new; exec sleep 600
`
