package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const confirmation = "--confirm-original-dead"

// startCopy starts a server on a copy of a data directory. Its end leaves the pods of the copy as they are.
func startCopy(t *testing.T, dir string, args ...string) *cluster {
	t.Helper()
	c, err := start(binary(t, "monoplane"), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.leave(t) })
	return c
}

// leave ends the server, if it runs, without a word to the pods.
func (c *cluster) leave(t *testing.T) {
	t.Helper()
	_ = c.proc.Signal(syscall.SIGTERM) // It may have ended by now.
	if code := c.waitExit(t); code != 0 {
		t.Errorf("the server on %s ended with code %d\n%s", c.dir, code, c.stderr)
	}
}

func copyAll(t *testing.T, from string) string {
	t.Helper()
	to := shortDir(t)
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp -a: %v: %s", err, out)
	}
	return to
}

// copyRunning copies the data directory of a server that runs, as a snapshot of the disk would: nothing is written
// meanwhile. Of a database that is being written, a copy made file by file may be none.
func (c *cluster) copyRunning(t *testing.T) string {
	t.Helper()
	c.signal(t, syscall.SIGSTOP)
	defer c.signal(t, syscall.SIGCONT)
	eventually(t, "all threads are stopped", func() (bool, string) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.proc.Pid))
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if _, state, _ := strings.Cut(string(text), ") "); err != nil || !strings.HasPrefix(state, "T") {
				return false, fmt.Sprint(string(text), err)
			}
		}
		return len(threads) > 0, ""
	})
	return copyAll(t, c.dir)
}

func look(t *testing.T, p pods, name string) *corev1.Pod {
	t.Helper()
	got, err := p.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// counted is a pod that writes a line at each start.
func counted(b box) *corev1.Pod {
	pod := podOf("counted", b.sh("echo $$ >>BOX/starts; echo $$ >BOX/pid; exec sleep 3600"))
	return withRestart(pod, corev1.RestartPolicyAlways)
}

// one fails the test unless the pod was started once, and runs.
func one(t *testing.T, b box, when string) {
	t.Helper()
	if starts := strings.Count(b.read("starts"), "\n"); starts != 1 || !alive(b.pid(t, "pid")) {
		t.Errorf("%s: the pod was started %d times, want once; it runs: %v", when, starts, alive(b.pid(t, "pid")))
	}
}

// A data directory that is copied, while its server runs or not, neither starts a pod a second time nor stops one.
//
// spec: SAFE-5, NODE-7
func TestCopiedDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--node-name", "node")
	b, pods := newBox(t), c.pods(t, "default")
	pods.run(t, counted(b))
	b.pid(t, "pid")

	live := c.copyRunning(t)
	c.signal(t, syscall.SIGTERM)
	c.waitExit(t)
	still := copyAll(t, c.dir)
	c = startIn(t, c.dir, "--node-name", "node")
	pods = c.pods(t, "default")
	one(t, b, "after a restart")
	stop := func(dir string) result { return monoplane(t, nil, "down", "--data-dir", dir) }

	for name, dir := range map[string]string{"while it ran": live, "while it did not run": still} {
		// The kubeconfig of the copy still leads to the original.
		refused(t, stop(dir), "no cluster runs on "+dir)
		one(t, b, "after monoplane down on a copy that nobody started")

		for _, runtime := range []string{"host", "fake"} {
			d := startCopy(t, dir, "--node-name", "node", "--runtime", runtime)
			if out := d.stdout.String(); !strings.Contains(out, "copied") || !strings.Contains(out, confirmation) ||
				strings.Contains(out, "ready") {
				t.Errorf("copied %s, the server says:\n%s", name, out)
			}
			if got := send(t, d.http(t), "GET", d.url+"/readyz", "", ""); got.code == 200 {
				t.Errorf("copied %s, the server says that it is ready: %s", name, got.body)
			}
			copied := d.pods(t, "default")
			if p := look(t, copied, "counted"); p.Spec.NodeName != "node" || p.Status.Phase != corev1.PodRunning {
				t.Errorf("copied %s, the pod is on %q and %s", name, p.Spec.NodeName, p.Status.Phase)
			}
			copied.delete(t, "counted", 1)
			if r := stop(dir); r.code != 0 {
				t.Errorf("monoplane down on the copy: %+v", r)
			}
			d.waitExit(t)
			one(t, b, "after the copy made "+name+" has run with the runtime "+runtime)
		}
	}
	if p := look(t, pods, "counted"); p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil ||
		p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the original's pod: %+v", p.Status)
	}
}

// A restored snapshot runs nothing until somebody has said that the original is dead: to the start, which does not
// remember it, or to the restore, for the first start of that very directory.
//
// spec: SAFE-5, NODE-7
func TestRestoredSnapshotRunsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--node-name", "node")
	b := newBox(t)
	c.pods(t, "default").run(t, counted(b))
	first := b.pid(t, "pid")
	file := filepath.Join(t.TempDir(), "backup.db")
	ok := func(args ...string) {
		t.Helper()
		if r := monoplane(t, nil, args...); r.code != 0 {
			t.Fatalf("monoplane %s: %+v", strings.Join(args, " "), r)
		}
	}
	ok("snapshot", "save", file, "--data-dir", c.dir)
	restored, confirmed := shortDir(t), shortDir(t)
	key := filepath.Join(c.dir, "secrets.key")
	ok("snapshot", "restore", file, "--data-dir", restored, "--secrets-key", key)
	ok("snapshot", "restore", file, "--data-dir", confirmed, "--secrets-key", key, confirmation)
	copied := copyAll(t, confirmed)

	for _, dir := range []string{restored, restored, copied} {
		d := startCopy(t, dir, "--node-name", "node")
		if out := d.stdout.String(); !strings.Contains(out, confirmation) || strings.Contains(out, "ready") {
			t.Errorf("the server on %s says:\n%s", dir, out)
		}
		d.leave(t)
		one(t, b, "after a restored server has run")
	}

	// The original ends, with its pod.
	ok("down", "--data-dir", c.dir)
	gone(t, first)
	d := startCopy(t, restored, "--node-name", "node")
	if out := d.stdout.String(); strings.Contains(out, "ready") {
		t.Errorf("without the confirmation the server says:\n%s", out)
	}
	d.leave(t)
	for i, dir := range []string{restored, confirmed} {
		args := []string{"--node-name", "node"}
		if dir == restored {
			args = append(args, confirmation)
		}
		d := startIn(t, dir, args...)
		eventually(t, "the pod runs where the node was taken over", func() (bool, string) {
			starts := b.read("starts")
			return strings.Count(starts, "\n") == i+2, starts
		})
		// What was said once is done, and not said for the next time.
		d.signal(t, os.Interrupt)
		if code := d.waitExit(t); code != 0 {
			t.Errorf("exit code %d\n%s", code, d.stderr)
		}
		refused(t, monoplane(t, nil, upArgs(dir, "--node-name", "node", confirmation)...), "no other machine")
	}
}

// Simulated nodes run nothing that could run twice: a copy of them goes on by itself.
//
// spec: SAFE-5
func TestCopyOfSimulatedNodes(t *testing.T) {
	t.Parallel()
	args := []string{"--runtime", "fake", "--nodes", "3", "--node-name", "n"}
	c := newCluster(t, args...)
	for _, name := range []string{"a", "b", "c"} {
		c.pods(t, "default").run(t, sleeper(name))
	}
	d := startIn(t, c.copyRunning(t), args...)
	if out := d.stdout.String(); !strings.Contains(out, "Monoplane is ready") {
		t.Errorf("the copy says:\n%s", out)
	}
	pods := d.pods(t, "default")
	pods.run(t, sleeper("new"))
	for _, name := range []string{"a", "new"} {
		pod := look(t, pods, name)
		pods.delete(t, name, 1)
		pods.untilGone(t, pod)
	}
	if p := look(t, c.pods(t, "default"), "a"); p.Status.Phase != corev1.PodRunning {
		t.Errorf("the original's pod: %+v", p.Status)
	}
	// Real pods on a node that was simulated are another matter.
	r := startCopy(t, c.copyRunning(t), "--node-name", "n-0")
	if out := r.stdout.String(); strings.Contains(out, "ready") || !strings.Contains(out, confirmation) {
		t.Errorf("a copy with the runtime host says:\n%s", out)
	}
}
