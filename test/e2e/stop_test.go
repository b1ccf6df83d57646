package e2e_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// command is a monoplane command that runs beside the test.
type command struct {
	stdout, stderr *capture
	proc           *os.Process
	exited         chan struct{} // closed once the process has ended and code is set
	code           int
}

// begin starts a command. The test's end kills it, should it still run.
func begin(t *testing.T, args ...string) *command {
	t.Helper()
	c := &command{stdout: &capture{}, stderr: &capture{}}
	c.begin(t, c.stdout, c.stderr, args...)
	return c
}

// begin starts the command, which says what it has to say there.
func (c *command) begin(t *testing.T, stdout, stderr io.Writer, args ...string) {
	t.Helper()
	c.exited = make(chan struct{})
	cmd := exec.Command(binary(t, "monoplane"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment(), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.proc = cmd.Process
	go func() {
		_ = cmd.Wait() // Its exit code says the same.
		c.code = cmd.ProcessState.ExitCode()
		close(c.exited)
	}()
	t.Cleanup(func() {
		_ = c.proc.Kill() // It has ended, if all went well.
		<-c.exited
	})
}

func (c *command) waitExit(t *testing.T) int {
	t.Helper()
	select {
	case <-c.exited:
		return c.code
	case <-time.After(patience):
		t.Fatalf("it has not ended\n%s%s", c.stdout, c.stderr)
		return 0
	}
}

// waits is a script that ignores TERM, and ends when the file "go" is in its box.
const waits = `trap "" TERM; echo $$ >BOX/pid; while [ ! -e BOX/go ]; do sleep 0.05; done; exit 0`

// A stop goes on when `down` is interrupted. The server says that it is stopping, in every way there is; whoever runs
// `down` again waits for the same stop, and sees what for; and the server ends by itself when the pods have.
func TestDownIsInterrupted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := newBox(t)
	c.pods(t, "default").run(t, withRestart(withGrace(podOf("waits", b.sh(waits)), 600), corev1.RestartPolicyAlways))
	pid := b.pid(t, "pid")
	for range 2 {
		down := begin(t, "down", "--data-dir", c.dir)
		down.stdout.waitFor(t, `Stopping pods default/waits`)
		if err := down.proc.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := down.waitExit(t); code != 1 || !strings.Contains(down.stderr.String(),
			"the server goes on stopping its pods") {
			t.Errorf("down ended with %d: %s", code, down.stderr)
		}
	}
	c.stdout.waitFor(t, `Stopping pods default/waits \(asked for by monoplane down; Ctrl-C leaves them running\)`)
	if got := send(t, c.http(t), "GET", c.url+"/readyz", "", ""); got.code != 500 ||
		!strings.Contains(got.body, "[-]shutdown failed") {
		t.Errorf("readyz: %d %s", got.code, got.body)
	}
	if got := send(t, c.http(t), "GET", c.url+"/livez", "", ""); got.code != 200 {
		t.Errorf("livez: %d %s", got.code, got.body)
	}
	eventually(t, "the node to say that it is shutting down", func() (bool, string) {
		nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 1 {
			return false, fmt.Sprint(err)
		}
		for _, cond := range nodes.Items[0].Status.Conditions {
			if cond.Type == corev1.NodeReady {
				return cond.Status == corev1.ConditionFalse && cond.Message == "node is shutting down", cond.String()
			}
		}
		return false, "no condition"
	})
	if !alive(pid) {
		t.Fatal("the pod got less than its grace")
	}

	first, second := begin(t, "down", "--data-dir", c.dir), begin(t, "down", "--data-dir", c.dir)
	for _, d := range []*command{first, second} {
		d.stdout.waitFor(t, `Stopping pods default/waits`)
	}
	b.put(t, "go")
	for _, d := range []*command{first, second} {
		if code := d.waitExit(t); code != 0 || !strings.Contains(d.stdout.String(), "Monoplane has stopped.") {
			t.Errorf("down ended with %d: %s%s", code, d.stdout, d.stderr)
		}
	}
	if code := c.waitExit(t); code != 0 || alive(pid) {
		t.Errorf("the server ended with %d, pod alive: %v\n%s", code, alive(pid), c.stderr)
	}
	next := startIn(t, c.dir)
	next.pods(t, "default").untilPhase(t, "waits", corev1.PodRunning)
}

// However early `down` is killed, the server either runs its pods and is ready, or stops and ends: it never says that
// it is ready while it runs nothing.
func TestDownIsKilledEarly(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir, b := shortDir(t), newBox(t)
	c := startIn(t, dir)
	c.pods(t, "default").run(t, withRestart(withGrace(podOf("polite", b.sh(
		`trap 'sleep 0.3; exit 0' TERM; echo $$ >BOX/pid; while :; do sleep 0.05; done`)), 30), corev1.RestartPolicyAlways))
	stopped := 0
	for range 8 {
		eventually(t, "a process", func() (bool, string) {
			var pid int
			_, err := fmt.Sscan(b.read("pid"), &pid)
			return err == nil && alive(pid), b.read("pid")
		})
		pid := b.pid(t, "pid")
		down := begin(t, "down", "--data-dir", dir)
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond) // when it is killed does not matter
		_ = down.proc.Kill()                                        // It may have ended by now.
		down.waitExit(t)
		client := c.http(t)
		ready := true
		for range 30 {
			lives := alive(pid)
			res, err := client.Get(c.url + "/readyz")
			if ready = err == nil && res.StatusCode == 200; !ready {
				break // it stops, or has ended
			}
			_ = res.Body.Close()
			if !lives {
				t.Fatal("the server runs nothing and says that it is ready")
			}
			time.Sleep(5 * time.Millisecond)
		}
		client.CloseIdleConnections()
		if ready {
			continue
		}
		stopped++
		if code := c.waitExit(t); code != 0 || alive(pid) {
			t.Fatalf("the server ended with %d, pod alive: %v\n%s", code, alive(pid), c.stderr)
		}
		c = startIn(t, dir)
	}
	t.Logf("%d of 8 stops had begun", stopped)
}

// Pods that are being stopped can be left after all: the server ends, and so does who waited for them.
func TestLeavingPodsDuringAStop(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := newBox(t)
	c.pods(t, "default").run(t, withGrace(podOf("waits", b.sh(waits)), 600))
	pid := b.pid(t, "pid")
	down := begin(t, "down", "--data-dir", c.dir)
	down.stdout.waitFor(t, `Stopping pods default/waits`)
	if r := monoplane(t, nil, "down", "--leave-pods", "--data-dir", c.dir); r.code != 0 || r.stderr != "" {
		t.Errorf("down --leave-pods: %+v", r)
	}
	if code := down.waitExit(t); code != 1 || strings.Contains(down.stdout.String(), "has stopped") {
		t.Errorf("who waited ended with %d: %s%s", code, down.stdout, down.stderr)
	}
	if code := c.waitExit(t); code != 0 || !alive(pid) || !strings.Contains(c.stdout.String(),
		"Leaving the pods running") {
		t.Errorf("the server ended with %d, pod alive: %v\n%s", code, alive(pid), c.stdout)
	}
	c = startIn(t, c.dir)

	// The same at the server's own terminal.
	down = begin(t, "down", "--data-dir", c.dir)
	c.stdout.waitFor(t, `Stopping pods default/waits \(asked for by monoplane down`)
	c.signal(t, os.Interrupt)
	if code := c.waitExit(t); code != 0 || !alive(pid) {
		t.Errorf("the server ended with %d, pod alive: %v\n%s", code, alive(pid), c.stderr)
	}
	if code := down.waitExit(t); code != 1 {
		t.Errorf("who waited ended with %d: %s%s", code, down.stdout, down.stderr)
	}
	startIn(t, c.dir) // Its end removes the pod.
}

// When whoever reads what the server says has ended, as `monoplane up | head` does, the server goes on, and Ctrl-C
// stops its pods.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	dir, up := shortDir(t), &command{stdout: &capture{}, stderr: &capture{}}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	up.begin(t, w, w, upArgs(dir)...)
	w.Close()
	go func() { _, _ = io.Copy(up.stdout, r) }() // Until it is closed below.
	up.stdout.waitFor(t, "Ctrl-C stops")
	url := regexp.MustCompile(`REST +(https://\S+)`).FindStringSubmatch(up.stdout.String())[1]
	c := &cluster{dir: dir, url: url}
	b := newBox(t)
	c.pods(t, "default").run(t, withGrace(podOf("polite", b.sh(
		`trap 'exit 0' TERM; echo $$ >BOX/pid; while :; do sleep 0.05; done`)), 30))
	pid := b.pid(t, "pid")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := up.proc.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := up.waitExit(t); code != 0 || alive(pid) {
		t.Errorf("the server ended with %d, pod alive: %v", code, alive(pid))
	}
}

// Ctrl-C ends a start at every stage of it, whether the pods of an earlier run are known by then or not, and the next
// start goes as any other.
func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir, b := shortDir(t), newBox(t)
	c := startIn(t, dir)
	p := c.pods(t, "default")
	p.run(t, withRestart(podOf("polite", b.sh(`trap 'exit 0' TERM; echo $$ >BOX/pid; while :; do sleep 0.05; done`)),
		corev1.RestartPolicyAlways))
	c.signal(t, syscall.SIGTERM)
	c.waitExit(t)
	codes := map[int]int{}
	for range 12 {
		up := begin(t, upArgs(dir)...)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // any stage will do
		_ = up.proc.Signal(os.Interrupt)                            // A process that has not begun to listen dies of it.
		code := up.waitExit(t)
		codes[code]++
		err := up.stderr.String()
		if code > 1 || strings.Contains(err, "goroutine ") || code == 1 &&
			up.stderr.tail(1) != "monoplane: stopped before it was ready" {
			t.Errorf("it ended with %d: %s%s", code, up.stdout, err)
		}
		if strings.Contains(err, "level=") {
			t.Logf("it said: %s", err)
		}
	}
	t.Logf("exit codes: %v", codes)
	startIn(t, dir).pods(t, "default").untilPhase(t, "polite", corev1.PodRunning)
}

// A container that was stopped with its node has not failed: it restarts without back-off, however often that happens.
// spec: CTR-3, design decision 13
func TestStopsAreNoFailures(t *testing.T) {
	t.Parallel()
	dir, b := shortDir(t), newBox(t)
	c := startIn(t, dir)
	c.pods(t, "default").run(t, withRestart(podOf("steady", b.sh(
		`trap 'exit 1' TERM; echo $$ >BOX/pid; while :; do sleep 0.05; done`)), corev1.RestartPolicyAlways))
	for i := range 4 {
		pid := b.pid(t, "pid")
		if i%2 == 0 {
			c.signal(t, os.Interrupt)
		} else if r := monoplane(t, nil, "down", "--data-dir", dir); r.code != 0 {
			t.Errorf("down: %+v", r)
		}
		if code := c.waitExit(t); code != 0 || alive(pid) {
			t.Fatalf("the server ended with %d, pod alive: %v\n%s", code, alive(pid), c.stderr)
		}
		c = startIn(t, dir)
		eventually(t, "a new process", func() (bool, string) {
			var now int
			_, err := fmt.Sscan(b.read("pid"), &now)
			return err == nil && now != pid && alive(now), b.read("pid")
		})
	}
	c.pods(t, "default").until(t, "steady", "running for the fifth time", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount == 4 && s.State.Running != nil
	})
	events, err := c.client(t).CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == "BackOff" {
			t.Errorf("it had to wait: %s", e.Message)
		}
	}
}
