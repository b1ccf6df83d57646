//go:build rootonly

package e2e_test

import (
	"archive/tar"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/quota/test/quotatest"
	"monoplane.dev/test/containerd"
)

// TestRootUserLimitsOfStorage evicts pods that store more than they may, without root, though they keep it in
// directories that nobody but their users may read: with the ids of /etc/subuid, and with one id, where the agent's
// own user has locked itself out. A pod that keeps to its limits goes on.
//
// spec: QOS-2, VOL-1
func TestRootUserLimitsOfStorage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, user, mode string }{
		{"many", "1000", "700"},
		{"one", "0", "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.uid = unprivileged
			if tc.name == "many" {
				m = withIDs(t)
			}
			fill := func(dir string, size int) string {
				return fmt.Sprintf("mkdir %s/x && head -c %d /dev/zero >%[1]s/x/f && chmod %[3]s %[1]s/x", dir, size, tc.mode)
			}
			storageLimits(t, m, tc.user, []storing{
				volumeOver(fill("/e", 3_000_000)), layerOver(fill("/o", 3_000_000)), podOver(fill("/e", 3_000_000)),
				{name: "modest", script: fill("/e", 500_000), size: "1Mi", most: "1Mi", other: "10Mi"},
			})
		})
	}
}

// TestRootImageStorageLimits evicts pods of images that store more than they may, wherever that is: in their root, in
// a volume that the image declares, in an emptyDir, in their logs.
//
// spec: QOS-2, VOL-1
func TestRootImageStorageLimits(t *testing.T) {
	t.Parallel()
	const fill = "head -c 3000000 /dev/zero >"
	declared, logs := layerOver(fill+"/data/f"), layerOver("yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c 3000000")
	declared.name, logs.name = "declared", "logs"
	storageLimits(t, newMachine(t), "0", []storing{
		volumeOver(fill + "/e/f"), layerOver(fill + "/f"), podOver(fill + "/e/f"), declared, logs,
		{name: "modest", script: "head -c 500000 /dev/zero >/data/f; head -c 400000 /dev/zero >/e/f", size: "1Mi",
			most: "1Mi", other: "10Mi"},
	})
}

// storing is a pod with an emptyDir, of which one container runs a script.
type storing struct {
	name, script string
	// size is the limit of the emptyDir, most that of the container's local storage, other that of another one's;
	// empty for none.
	size, most, other string
	// message is why it is evicted; empty if it is not.
	message string
}

func volumeOver(script string) storing {
	return storing{name: "volume", script: script, size: "1Mi",
		message: `Usage of EmptyDir volume "e" exceeds the limit "1Mi". `}
}

func layerOver(script string) storing {
	return storing{name: "layer", script: script, most: "1Mi", other: "10Mi",
		message: `Container c exceeded its local ephemeral storage limit "1Mi". `}
}

func podOver(script string) storing {
	return storing{name: "all", script: script, most: "1Mi", other: "1Mi",
		message: `Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. `}
}

// storageLimits runs pods as a user on a machine, until those are evicted that are to be, and all others are ready.
func storageLimits(t *testing.T, m *machine, user string, pods []storing) {
	t.Helper()
	u := m.imageCluster(t)
	u.images = filepath.Join(u.home, "owners")
	u.load(t, ownersImage)
	u.begin(t)
	k := u.kubectl(t)
	limit := func(name, most string) string {
		if most == "" {
			return "{}"
		}
		return fmt.Sprintf("{%s: %s}", name, most)
	}
	var manifest strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&manifest, storingManifest, p.name, user, p.script, limit("ephemeral-storage", p.most),
			limit("ephemeral-storage", p.other), limit("sizeLimit", p.size))
	}
	if out, code := k.run(t, manifest.String(), "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	for _, p := range pods {
		if p.message == "" {
			k.ok(t, "wait --for=condition=Ready pod/"+p.name+" --timeout=2m")
			continue
		}
		want := "Failed|Evicted|" + p.message
		// Where a look at all pods takes long, the next one comes after twenty times as long.
		err := poll(3*patience, func() (bool, string) {
			got := k.ok(t, "get pod "+p.name+" -o jsonpath={.status.phase}|{.status.reason}|{.status.message}")
			return got == want, got
		})
		if err != nil {
			t.Errorf("%s: %v; want %q", p.name, err, want)
		}
	}
	k.ok(t, "delete pod --all --timeout=2m")
	empty(t, filepath.Join(u.dir, "nodes", nodeOf(t, u.dir), "pods-data"))
}

// TestRootQuotaBoundsPods has pods fill their emptyDirs and roots as fast as they can, on a disk with project quotas:
// they are evicted as ever, and until then none has stored more than the quota lets it. Nothing is left of their
// quotas.
//
// spec: QOS-2, VOL-1
func TestRootQuotaBoundsPods(t *testing.T) {
	t.Parallel()
	disk := filepath.Dir(shortDir(t))
	quotatest.Mount(t, disk, "prjquota")
	u := newMachine(t).imageCluster(t)
	u.dir, u.images = filepath.Join(disk, "data"), filepath.Join(disk, "images")
	load := exec.Command(u.monoplane, "image", "load", filepath.Join(u.home, "images.tar"), "--image-dir", u.images)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("image load: %v\n%s", err, out)
	}
	// By default so small a disk is full.
	u.flags = []string{"--eviction-hard", "nodefs.available<1Mi,imagefs.available<1Mi"}
	u.begin(t)
	k := u.kubectl(t)
	const fill = "while dd if=/dev/zero bs=64k count=16 >>FILE 2>/r/why; " +
		"do wc -c <FILE >/r/next && mv /r/next /r/size; done; " +
		"wc -c <FILE >/r/next && mv /r/next /r/size; exec sleep 600"
	const whole = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "
	pods := []struct{ name, file, limit, size, message string }{
		{"volume", "/e/f", "{}", "{sizeLimit: 1Mi}", `Usage of EmptyDir volume "e" exceeds the limit "1Mi". `},
		{"pod", "/e/f", "{ephemeral-storage: 1Mi}", "{}", whole},
		{"layer", "/f", "{ephemeral-storage: 1Mi}", "{}", whole},
	}
	var manifests strings.Builder
	for _, p := range pods {
		report := filepath.Join(u.home, p.name)
		if err := os.Mkdir(report, 0o700); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifests, fillingManifest, p.name, strings.ReplaceAll(fill, "FILE", p.file), p.limit, p.size, report)
	}
	u.apply(t, manifests.String())
	for _, p := range pods {
		want := "Failed|Evicted|" + p.message
		err := poll(3*patience, func() (bool, string) {
			got := k.ok(t, "get pod "+p.name+" -o jsonpath={.status.phase}|{.status.reason}|{.status.message}")
			return got == want, got
		})
		if err != nil {
			t.Errorf("%s: %v; want %q", p.name, err, want)
		}
	}
	k.ok(t, "delete pod --all --timeout=2m")
	empty(t, filepath.Join(u.dir, "nodes", nodeOf(t, u.dir), "pods-data"))
	for _, p := range pods {
		size, err := os.ReadFile(filepath.Join(u.home, p.name, "size"))
		why, unread := os.ReadFile(filepath.Join(u.home, p.name, "why"))
		stored, wrong := strconv.Atoi(strings.TrimSpace(string(size)))
		if err := errors.Join(err, unread, wrong); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: stored %d bytes; the last write said: %s", p.name, stored, why)
		if stored > 17<<20 { // What the quota lets it.
			t.Errorf("%s: it has stored %d bytes", p.name, stored)
		}
	}
	limits := quotatest.Limits(t, disk)
	delete(limits, 0) // Of the files that are in no project.
	if len(limits) > 0 {
		t.Errorf("projects and their limits when all pods are gone: %v", limits)
	}
}

// TestRootImagesAreCollected fills the disk of the images that two clusters share: the one that looks removes what
// nobody uses, and goes on to it past what the other one uses, which looks as if it had been unused for longest.
//
// spec: QOS-2, CTR-6
func TestRootImagesAreCollected(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 512, "")
	theirs, ours := newMachine(t).imageCluster(t), newMachine(t).imageCluster(t)
	theirs.images, ours.images = filepath.Join(disk, "images"), filepath.Join(disk, "images")
	base, _, err := containerd.Box()
	if err != nil {
		t.Fatal(err)
	}
	load := func(name string) (id string) {
		data := make([]byte, 8<<20)
		_, _ = rand.Read(data) // It never fails.
		return theirs.loadLayers(t, name, base, packed(t, map[string]string{"part": string(data)},
			tar.Header{Name: "part", Mode: 0o644}))
	}
	var all [][2]string // Ids and names, in the order in which they are looked at.
	for i := range 3 {
		name := fmt.Sprintf("localhost/part:%d", i)
		all = append(all, [2]string{load(name), name})
	}
	slices.SortFunc(all, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	theirs.flags = []string{"--eviction-hard", "imagefs.available<1Mi"} // By default so small a disk is full.
	theirs.begin(t)
	k := theirs.kubectl(t)
	for i, image := range all[:2] {
		k.ok(t, fmt.Sprintf("run user%d --image=%s", i, image[1]))
	}
	const look = "wait --for=condition=Ready pod/user0 pod/user1 --timeout=2m"
	k.ok(t, look)
	var loaded []string
	for _, image := range all {
		loaded = append(loaded, load(image[1])) // The one before has no name any more.
	}

	room := hostinfo.RoomOf(disk)
	percent := float64(room.Size-room.Available) / float64(room.Size) * 100
	most := strconv.Itoa(int(percent - 0.2)) // Less is too much than any of the images takes.
	ours.flags = append(theirs.flags, "--image-gc-high-threshold", most, "--image-gc-low-threshold", most,
		"--minimum-image-ttl-duration", "1ns")
	ours.begin(t)
	listed := func() string {
		out, err := exec.Command(ours.monoplane, "image", "list", "--image-dir", ours.images).CombinedOutput()
		if err != nil {
			t.Fatalf("image list: %v\n%s", err, out)
		}
		return string(out)
	}
	err = poll(patience, func() (bool, string) {
		out := listed()
		return !strings.Contains(out, short(all[2][0])), out
	})
	if err != nil {
		t.Errorf("the image that nobody uses: %v", err)
	}
	out := listed()
	for _, image := range all[:2] {
		if !strings.Contains(out, short(image[0])) {
			t.Errorf("%s is gone, though a container is made of it:\n%s", image[0], out)
		}
	}
	for _, id := range loaded {
		if !strings.Contains(out, short(id)) {
			t.Errorf("%s is gone, though nobody can pull what was loaded:\n%s", id, out)
		}
	}
	k.ok(t, look)
	if out := ours.kubectl(t).ok(t, "get events -A"); strings.Contains(out, "ImageGCFailed") {
		t.Errorf("it seems to have failed:\n%s", out)
	}
}

// short is how an id is listed.
func short(id string) string { return strings.TrimPrefix(id, "sha256:")[:12] }

const fillingManifest = `
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: localhost/box:1
    command: [sh, -c, '%s']
    resources: {limits: %s}
    volumeMounts: [{name: e, mountPath: /e}, {name: r, mountPath: /r}]
  volumes: [{name: e, emptyDir: %s}, {name: r, hostPath: {path: '%s'}}]
`

const storingManifest = `
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: %s}
  containers:
  - name: c
    image: localhost/owners:1
    command: [sh, -c, '%s; exec sleep 600']
    volumeMounts: [{name: e, mountPath: /e}]
    resources: {limits: %s}
  - {name: other, image: 'localhost/owners:1', resources: {limits: %s}}
  volumes: [{name: e, emptyDir: %s}]
`
