package e2e_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// counts is a script that prints a number every 50 ms.
const counts = `echo $$ >BOX/pid; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.05; done`

// The server is killed with SIGKILL and started again on the same directory: what ran goes on, what ended
// meanwhile is known with its exit code, and a termination that was under way
// takes no less than its grace.
// spec: DEL-10, DEL-13, NODE-2, LIFE-2, OBJ-7
func TestKillAndAdopt(t *testing.T) {
	t.Parallel()
	first := newCluster(t)
	p := first.pods(t, "default")
	runs, ends, stops := newBox(t), newBox(t), newBox(t)
	before := p.run(t, withRestart(podOf("runs", runs.sh(counts)), corev1.RestartPolicyAlways))
	p.run(t, podOf("ends", ends.sh(
		`echo $$ >BOX/pid; while [ ! -e BOX/go ]; do sleep 0.05; done; echo last words; exit 42`)))
	stopping := p.run(t, withGrace(podOf("stops", stops.sh(stubborn)), 10))
	vanishes := newBox(t)
	p.run(t, withGrace(podOf("vanishes", vanishes.sh(stubborn)), 600))
	runsPid, endsPid, stopsPid, vanishesPid := runs.pid(t, "pid"), ends.pid(t, "pid"), stops.pid(t, "pid"),
		vanishes.pid(t, "pid")
	eventually(t, "first lines", func() (bool, string) { return strings.Contains(p.logs(t, "runs"), "line 5\n"), "" })
	began := time.Now()
	p.delete(t, "stops", -1)
	p.until(t, "stops", "terminating", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	// Forced just before the crash: nobody is left who knows the pod.
	p.delete(t, "vanishes", 0)

	first.kill(t)
	for name, pid := range map[string]int{"runs": runsPid, "ends": endsPid, "stops": stopsPid} {
		if !alive(pid) {
			t.Fatalf("pod %s died with the server", name)
		}
	}
	ends.put(t, "go")
	gone(t, endsPid)

	second := startIn(t, first.dir)
	p = second.pods(t, "default")
	// spec: OBJ-7
	_, err := second.client(t).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from the beginning, of which the new server knows nothing: %v, want Expired", err)
	}
	ended := p.untilPhase(t, "ends", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	if ended == nil || ended.ExitCode != 42 || ended.Reason != "Error" {
		t.Errorf("the end while the server was dead: %+v, want exit code 42", ended)
	}
	if got := p.logs(t, "ends"); got != "last words\n" {
		t.Errorf("logs of the pod that ended: %q", got)
	}

	p.untilGone(t, stopping)
	if took := time.Since(began); took < 10*time.Second {
		t.Errorf("the termination ended after %v, want its whole grace of 10 s", took)
	}
	if alive(stopsPid) {
		t.Error("the terminated pod's process still runs")
	}
	gone(t, vanishesPid)

	after, err := p.Get(t.Context(), "runs", metav1.GetOptions{})
	if err != nil || after.UID != before.UID || after.Status.Phase != corev1.PodRunning {
		t.Fatalf("adopted pod: %+v, %v", after, err)
	}
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.RestartCount != 0 ||
		!is.State.Running.StartedAt.Equal(&was.State.Running.StartedAt) {
		t.Errorf("container before %+v, after %+v", was, is)
	}
	if !alive(runsPid) || runs.pid(t, "pid") != runsPid {
		t.Error("it is another process")
	}
	p.wantNoGap(t, "runs")
}

// wantNoGap checks that a pod that counts goes on to write to its log, and that this holds every line once, in order.
func (p pods) wantNoGap(t *testing.T, name string) {
	t.Helper()
	lines := func() []string { return strings.Split(strings.TrimSpace(p.logs(t, name)), "\n") }
	first := lines()
	all := first
	eventually(t, "more lines in the log of "+name, func() (bool, string) {
		all = lines()
		return len(all) >= 20 && len(all) > len(first), strconv.Itoa(len(all)) + " lines"
	})
	for i, line := range all {
		if line != "line "+strconv.Itoa(i+1) {
			t.Fatalf("line %d of the log is %q", i+1, line)
		}
	}
}

// Ctrl-C stops the pods, each with its grace, says which, and then the server. The objects stay, and the next
// start runs them again.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := newBox(t)
	p := c.pods(t, "default")
	p.run(t, withRestart(withGrace(podOf("polite", b.sh(
		`trap 'sleep 1; echo bye >>BOX/bye; exit 0' TERM; echo $$ >BOX/pid; while :; do sleep 0.05; done`)), 30),
		corev1.RestartPolicyAlways))
	pid := b.pid(t, "pid")
	c.signal(t, os.Interrupt)
	if code := c.waitExit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(c.stdout.String(), "Stopping pods default/polite") {
		t.Errorf("the output does not say what it waits for:\n%s", c.stdout)
	}
	if alive(pid) || b.read("bye") != "bye\n" {
		t.Errorf("process alive: %v, its last words: %q", alive(pid), b.read("bye"))
	}
	if left := holders(c.dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}

	next := startIn(t, c.dir)
	eventually(t, "a new process", func() (bool, string) {
		text := strings.TrimSpace(b.read("pid"))
		now, err := strconv.Atoi(text)
		return err == nil && now != pid && alive(now), text
	})
	next.pods(t, "default").untilPhase(t, "polite", corev1.PodRunning)
}

// A second Ctrl-C ends the server at once and leaves the pods.
func TestInterruptTwice(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := newBox(t)
	c.pods(t, "default").run(t, withGrace(podOf("stubborn", b.sh(stubborn)), 600))
	pid := b.pid(t, "pid")
	c.signal(t, os.Interrupt)
	c.stdout.waitFor(t, `Stopping pods default/stubborn \(Ctrl-C again leaves them running\)`)
	c.signal(t, os.Interrupt)
	if code := c.waitExit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(c.stdout.String(), "Leaving the pods running") {
		t.Errorf("stdout: %s", c.stdout)
	}
	if !alive(pid) {
		t.Error("the pod's process is gone")
	}
	startIn(t, c.dir) // Its end removes the pod.
}

// SIGTERM and `down --leave-pods` leave the pods, `down` stops them.
func TestTerminateAndDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := newBox(t)
	c.pods(t, "default").run(t, podOf("stays", b.sh(counts)))
	pid := b.pid(t, "pid")
	c.signal(t, syscall.SIGTERM)
	if code := c.waitExit(t); code != 0 || !alive(pid) {
		t.Errorf("after SIGTERM: exit code %d, pod alive: %v", code, alive(pid))
	}

	c = startIn(t, c.dir)
	if r := monoplane(t, nil, "down", "--leave-pods", "--data-dir", c.dir); r.code != 0 || r.stderr != "" {
		t.Errorf("down --leave-pods: %+v", r)
	}
	if code := c.waitExit(t); code != 0 || !alive(pid) {
		t.Errorf("after down --leave-pods: exit code %d, pod alive: %v", code, alive(pid))
	}

	c = startIn(t, c.dir)
	r := monoplane(t, nil, "down", "--data-dir", c.dir)
	if r.code != 0 || r.stderr != "" ||
		!regexp.MustCompile(`(?s)Stopping pods default/stays.*Monoplane has stopped\.`).MatchString(r.stdout) {
		t.Errorf("down: %+v", r)
	}
	if code := c.waitExit(t); code != 0 || alive(pid) {
		t.Errorf("after down: exit code %d, pod alive: %v", code, alive(pid))
	}
	refused(t, monoplane(t, nil, "down", "--data-dir", c.dir), c.dir)
}

// Without its server, which was killed or told to leave the pods, `down` stops them itself: with the settings of the
// last start, wherever those came from, and also when its addresses are taken. After it there is nothing to stop.
func TestDownWithoutServer(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "told to leave": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, b := shortDir(t), newBox(t)
			config := filepath.Join(filepath.Dir(dir), "config.yaml")
			if err := os.WriteFile(config, []byte("node-labels:\n  a: b\n  c: d\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := startIn(t, dir, "--node-name", "other", "--config", config, "--register-with-taints", "x=y:PreferNoSchedule")
			c.pods(t, "default").run(t, withGrace(podOf("polite", b.sh(
				`trap 'echo bye >>BOX/bye; exit 0' TERM; echo $$ >BOX/pid; while :; do sleep 0.05; done`)), 30))
			pid := b.pid(t, "pid")
			c.signal(t, sig)
			c.waitExit(t)
			if !alive(pid) {
				t.Fatal("the pod has gone with its server")
			}
			refused(t, monoplane(t, nil, "down", "--leave-pods", "--data-dir", dir), "no cluster runs on "+dir)

			taken, err := net.Listen("tcp", strings.TrimPrefix(c.url, "https://"))
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			r := monoplane(t, nil, "down", "--data-dir", dir)
			said := regexp.MustCompile(
				`(?s)^No server runs on .*Stopping pods default/polite \(Ctrl-C leaves.*Monoplane has stopped\.\n$`)
			if r.code != 0 || !said.MatchString(r.stdout) {
				t.Errorf("down: %+v", r)
			}
			if alive(pid) || b.read("bye") != "bye\n" || len(holders(dir)) > 0 {
				t.Errorf("after down the pod lives: %v, its last words: %q; processes: %v", alive(pid), b.read("bye"),
					holders(dir))
			}
			refused(t, monoplane(t, nil, "down", "--data-dir", dir), "no cluster runs on "+dir)
		})
	}
}

// Two at once, without a server, stop the same pods: the one that comes second waits for the first one's server.
func TestTwoDownsWithoutServer(t *testing.T) {
	t.Parallel()
	c, b := newCluster(t), newBox(t)
	const script = `trap 'until [ -e BOX/go ]; do sleep 0.05; done; exit 0' TERM; echo $$ >BOX/pid
while :; do sleep 0.05; done`
	c.pods(t, "default").run(t, withGrace(podOf("waits", b.sh(script)), 600))
	b.pid(t, "pid")
	c.kill(t)
	downs := [2]*command{begin(t, "down", "--data-dir", c.dir), begin(t, "down", "--data-dir", c.dir)}
	for _, down := range downs {
		down.stdout.waitFor(t, `Stopping pods default/waits`)
	}
	b.put(t, "go")
	for _, down := range downs {
		if code := down.waitExit(t); code != 0 {
			t.Errorf("down: exit code %d, %s", code, down.stderr)
		}
	}
}

// A `down` that stops the pods itself is interrupted: they go on, it says so, and they can be stopped later.
func TestDownWithoutServerIsInterrupted(t *testing.T) {
	t.Parallel()
	c, b := newCluster(t), newBox(t)
	const script = `trap 'until [ -e BOX/go ]; do sleep 0.05; done; exit 0' TERM; echo $$ >BOX/pid
while :; do sleep 0.05; done`
	c.pods(t, "default").run(t, withGrace(podOf("waits", b.sh(script)), 600))
	pid := b.pid(t, "pid")
	c.kill(t)
	for range 2 {
		down := begin(t, "down", "--data-dir", c.dir)
		down.stdout.waitFor(t, `Stopping pods default/waits`)
		if err := down.proc.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := down.waitExit(t); code != 1 || !alive(pid) ||
			!strings.Contains(down.stdout.String(), "Leaving the pods") ||
			!strings.Contains(down.stderr.String(), "left running") {
			t.Errorf("down ended with %d, pod alive: %v: %s%s", code, alive(pid), down.stdout, down.stderr)
		}
	}
	b.put(t, "go")
	if r := monoplane(t, nil, "down", "--data-dir", c.dir); r.code != 0 || alive(pid) {
		t.Errorf("down: %+v, pod alive: %v", r, alive(pid))
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake")
	maps := c.client(t).CoreV1().ConfigMaps("default")
	kept, err := maps.Create(t.Context(), configMap("kept", "v"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string][]byte{"k": []byte("for nobody's eyes")},
	}
	if _, err := c.client(t).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup.db")
	if r := monoplane(t, nil, "snapshot", "save", file, "--data-dir", c.dir); r.code != 0 ||
		!strings.HasPrefix(r.stdout, "Saved ") || !strings.Contains(r.stdout, "secrets.key") {
		t.Fatalf("save: %+v", r)
	}
	key, err := os.ReadFile(filepath.Join(c.dir, "secrets.key"))
	if err != nil {
		t.Fatal(err)
	}
	// Secrets are encrypted with another key from now on; the snapshot needs this one.
	if r := monoplane(t, nil, "secrets", "rotate", "--data-dir", c.dir); r.code != 0 ||
		!strings.HasPrefix(r.stdout, "Encrypted 1 Secrets ") {
		t.Errorf("rotate: %+v", r)
	}
	if _, err := maps.Create(t.Context(), configMap("later", "v"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	dir := shortDir(t)
	if r := monoplane(t, nil, "snapshot", "restore", file, "--data-dir", dir); r.code != 0 ||
		!strings.HasPrefix(r.stdout, "Restored ") {
		t.Fatalf("restore: %+v", r)
	}
	refused(t, monoplane(t, nil, "snapshot", "restore", file, "--data-dir", dir), dir)
	refused(t, monoplane(t, nil, "up", "--runtime", "fake", "--data-dir", dir, "--listen", "127.0.0.1:0"), "secrets.key")
	if err := os.WriteFile(filepath.Join(dir, "secrets.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	api := startIn(t, dir, "--runtime", "fake").client(t).CoreV1()
	if s, err := api.Secrets("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil ||
		string(s.Data["k"]) != "for nobody's eyes" {
		t.Errorf("the secret: %v, %v", s, err)
	}
	restored := api.ConfigMaps("default")
	got, err := restored.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || got.UID != kept.UID || got.Data["k"] != "v" {
		t.Errorf("restored: %+v, %v", got, err)
	}
	if _, err := restored.Get(t.Context(), "later", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the snapshot: %v", err)
	}

	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, secret.Data["k"]) {
		t.Error("the snapshot holds the secret in plain text")
	}
	data[len(data)/2] ^= 0xFF
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	if err := os.WriteFile(damaged, data, 0o600); err != nil {
		t.Fatal(err)
	}
	other := shortDir(t)
	refused(t, monoplane(t, nil, "snapshot", "restore", damaged, "--data-dir", other), "snapshot")
	if r := monoplane(t, nil, "snapshot", "restore", file, "--data-dir", other); r.code != 0 {
		t.Errorf("a restore after a refused one: %+v", r)
	}
}

// spec: SCHED-4, SCHED-5
func TestFakeNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake", "--nodes", "5", "--node-name", "n")
	k, p := c.kubectl(t, "default"), c.pods(t, "default")
	k.tour(t, []step{{line: "get nodes", want: []string{`^n-0 +Ready`, `^n-4 +Ready`}}})
	node, err := c.client(t).CoreV1().Nodes().Get(t.Context(), "n-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A tenth of a node each, so that the least used node is never a tie with one that has a pod more.
	tenth := resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()/10, resource.DecimalSI)
	var created []*corev1.Pod
	for i := range 10 {
		pod := sleeper(fmt.Sprintf("p%d", i))
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *tenth}
		pod.Spec.Containers[0].Image = "nginx" // Nothing is pulled.
		created = append(created, p.create(t, pod))
	}
	used := map[string]int{}
	for _, pod := range created {
		used[p.untilPhase(t, pod.Name, corev1.PodRunning).Spec.NodeName]++
	}
	for name, n := range used {
		if n != 2 {
			t.Errorf("node %s has %d pods of %v, want 2", name, n, used)
		}
	}
	for _, pod := range created {
		p.delete(t, pod.Name, -1)
	}
	for _, pod := range created {
		p.untilGone(t, pod)
	}
}
