//go:build rootonly

package volumes_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/quota"
	"monoplane.dev/nodeagent/quota/test/quotatest"
	"monoplane.dev/nodeagent/volumes"
)

const mib = 1 << 20

func sized(name, limit string) *corev1.Volume {
	return emptyDir(name, &corev1.EmptyDirVolumeSource{SizeLimit: &metav1.Quantity{String_: limit}})
}

// expectLimits compares the limits of all projects, 0 for none, but that of the files which are in no project.
func (n *node) expectLimits(when string, want ...int64) {
	n.t.Helper()
	all := quotatest.Limits(n.t, filepath.Dir(n.dir))
	delete(all, 0)
	if got := slices.Sorted(maps.Values(all)); !slices.Equal(got, want) {
		n.t.Errorf("limits %s: %v, want %v", when, got, want)
	}
}

func newNodeWithQuotas(t *testing.T) *node {
	disk := t.TempDir()
	quotatest.Mount(t, disk, "prjquota")
	return newNodeIn(t, filepath.Join(disk, "pods"))
}

// An emptyDir on disk is bounded somewhat above the least of its limits, and none of that is left when its pod goes or
// rests, even if the pod has moved the volume to another project.
//
// spec: VOL-1
func TestRootBounds(t *testing.T) {
	n := newNodeWithQuotas(t)
	p := pod(sized("small", "1Mi"), sized("large", "200Mi"), host("h", "/", ""),
		emptyDir("none", &corev1.EmptyDirVolumeSource{}),
		emptyDir("memory", &corev1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: &metav1.Quantity{String_: "1Mi"}}))
	n.setUp(p)
	n.expectLimits("of volumes", 17*mib, 220*mib)
	n.setUp(p)
	n.expectLimits("again", 17*mib, 220*mib)
	for range 2 {
		if err := n.Rest(t.Context(), "uid-a"); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("chattr", "-p", "42", n.given(p)["/small"]).CombinedOutput(); err != nil {
		t.Fatalf("chattr: %v\n%s", err, out)
	}
	n.setUp(p)
	n.expectLimits("after a rest", 0, 17*mib, 220*mib) // 0 is the other project.
	n.tearDown(p)
	n.expectLimits("afterwards")

	p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{
		Limits: map[string]*metav1.Quantity{"ephemeral-storage": {String_: "100Mi"}},
	}
	n.setUp(p)
	n.expectLimits("of the pod", 17*mib, 116*mib, 116*mib)
	n.tearDown(p)
	n.expectLimits("after the pod")
}

// An agent that was killed before it noted a project finds it again, or takes it away.
//
// spec: VOL-1
func TestRootBoundsOfKilledAgent(t *testing.T) {
	n := newNodeWithQuotas(t)
	p := pod(sized("v", "1Mi"))
	for _, begin := range []func(){func() { n.setUp(p) }, func() {}} {
		// That is how far it had come: the directory has a project, of which nothing is known.
		dir := volumes.EmptyDir(filepath.Join(n.dir, "uid-a"), "v")
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if _, err := quota.New(dir); err != nil {
			t.Fatal(err)
		}
		begin()
		n.tearDown(p)
		n.expectLimits("afterwards")
	}
}

// A pod that is never evicted has no bound.
//
// spec: VOL-1
func TestRootKeptIsUnbounded(t *testing.T) {
	n := newNodeWithQuotas(t)
	n.Manager = volumes.New(volumes.Config{Dir: n.dir, Kept: func(*corev1.Pod) bool { return true }})
	t.Cleanup(n.Close)
	p := pod(sized("v", "1Mi"))
	n.setUp(p)
	n.expectLimits("of a pod that is kept")
	n.tearDown(p)
}
