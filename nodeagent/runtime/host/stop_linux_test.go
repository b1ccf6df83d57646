package host

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withAndWithout runs a test on pods with cgroups, where they can be had, and without.
func withAndWithout(t *testing.T, f func(t *testing.T, n *node), change ...func(*Config)) {
	t.Run("cgroup", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, change...)
		if ok, why := n.cgroups.Killable(); !ok {
			t.Skip("no usable cgroup: ", why)
		}
		f(t, n)
	})
	t.Run("descent", func(t *testing.T) {
		t.Parallel()
		f(t, newNode(t, slices.Concat(change, []func(*Config){func(c *Config) { c.NoCgroups = true }})...))
	})
}

// spec: TERM-1
func TestGraceIsHonoured(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the shim stops containers")
	n := newNode(t)
	ready := filepath.Join(n.dir, "ready")
	id := n.shell("tidy", `trap 'sleep 0.3; echo tidied; exit 3' TERM; echo $$ > `+ready+`; while :; do sleep 0.02; done`)
	readPID(t, ready)
	begin := time.Now()
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 3 || !strings.Contains(n.logText(id), "tidied") {
		t.Errorf("status %v, log %q", st, n.logText(id))
	}
	if d := time.Since(begin); d < 300*time.Millisecond || d > 10*time.Second {
		t.Errorf("stopped after %s", d)
	}
}

// spec: TERM-1, TERM-4
func TestTermIsIgnored(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the shim stops containers")
	n := newNode(t)
	ready := filepath.Join(n.dir, "ready")
	id := n.shell("stubborn", `trap '' TERM; echo $$ > `+ready+`; while :; do sleep 0.05; done`)
	pid := readPID(t, ready)
	begin := time.Now()
	n.stop(id, 1)
	if d := time.Since(begin); d < time.Second {
		t.Errorf("killed after %s of a grace of 1s", d)
	}
	if st := n.status(id); st.GetExitCode() != 137 || alive(pid) {
		t.Errorf("status %v, alive %v", st, alive(pid))
	}
}

// A runtime that takes over begins the stop anew, signal and grace; the container is not killed at the first deadline.
//
// spec: DEL-10
func TestStopBeginsAnewAfterRestart(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim stops containers")
	n := newNode(t)
	terms := filepath.Join(n.dir, "terms")
	id := n.shell("stubborn", `trap 'echo term >> `+terms+`' TERM; touch `+terms+`; while :; do sleep 0.02; done`)
	count := func(want int) {
		eventually(t, "the stop signal", func() bool {
			b, err := os.ReadFile(terms)
			return err == nil && strings.Count(string(b), "term") == want
		})
	}
	count(0)
	const grace = 2
	asked := make(chan struct{})
	go func() { // its runtime goes away
		_, _ = n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace})
		close(asked)
	}()
	count(1)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	<-asked
	n.open()
	begin := time.Now()
	n.stop(id, grace)
	if d := time.Since(begin); d < grace*time.Second {
		t.Errorf("killed %s after the stop began anew, the grace is %d s", d, grace)
	}
	count(2)
}

// spec: TERM-3
func TestGraceIsShortenedNeverLengthened(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim stops containers")
	n := newNode(t)
	ready := filepath.Join(n.dir, "ready")
	id := n.shell("stubborn", `trap '' TERM; echo $$ > `+ready+`; while :; do sleep 0.05; done`)
	readPID(t, ready)
	begin := time.Now()
	var calls sync.WaitGroup
	for _, timeout := range []int64{600, 1, 600, 300} {
		calls.Go(func() { n.stop(id, timeout) })
	}
	calls.Wait()
	if d := time.Since(begin); d < time.Second || d > 10*time.Second {
		t.Errorf("stopped after %s; the shortest grace was 1s", d)
	}
}

// A stop goes on when the one who asked for it has gone.
func TestStopOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim stops containers")
	n := newNode(t)
	ready, told := filepath.Join(n.dir, "ready"), filepath.Join(n.dir, "told")
	id := n.shell("stubborn",
		`trap 'echo $$ > `+told+`' TERM; echo $$ > `+ready+`; while :; do sleep 0.05; done`)
	readPID(t, ready)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const grace = 5 // seconds
	outcome := make(chan error, 1)
	begin := time.Now()
	go func() {
		_, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace})
		outcome <- err
	}()
	readPID(t, told)
	cancel()
	// A machine that stands still for as long is no fault.
	if err := <-outcome; err == nil && time.Since(begin) < grace*time.Second {
		t.Error("stopped before its grace was over")
	}
	n.reopen()
	if st := n.wait(id); st.GetExitCode() != 137 {
		t.Errorf("status %v", st)
	}
}

func TestStopSignal(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim stops containers")
	n := newNode(t)
	ready := filepath.Join(n.dir, "ready")
	config := containerConfig("c", "/bin/sh", "-c",
		`trap 'exit 5' USR1; trap 'exit 6' TERM; echo $$ > `+ready+`; while :; do sleep 0.02; done`)
	config.StopSignal = runtimeapi.Signal_SIGUSR1
	id := n.run(n.sandbox("usr1"), config)
	readPID(t, ready)
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 5 {
		t.Errorf("status %v", st)
	}
}

func TestStopSignalNumbers(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	for s := range runtimeapi.Signal_name {
		if n, err := stopSignal(runtimeapi.Signal(s)); err != nil || n < 1 || n > 64 {
			t.Errorf("%s: %d %v", runtimeapi.Signal_name[s], n, err)
		}
	}
	if _, err := stopSignal(1000); err == nil {
		t.Error("signal 1000 is known")
	}
}

// daemonConfig runs a process 1 that leaves a daemon behind: in a session of its own, its parent dead, its environment
// empty, and its output not the container's.
func daemonConfig(t *testing.T, name, pidFile, then string, hide bool) *runtimeapi.ContainerConfig {
	config := containerConfig(name, "/bin/sh", "-c", testBinary(t)+" /bin/sleep 1000 > "+pidFile+"; "+then)
	config.Envs = []*runtimeapi.KeyValue{{Key: helperVariable, Value: []byte("daemon")}}
	if hide {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: "HIDE", Value: []byte("1")})
	}
	return config
}

// spec: TERM-4
func TestDaemonsEndWithTheirContainer(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("daemons")
		other := n.run(sb, containerConfig("other", "sleep", "1000"))
		for _, how := range []string{"exits", "is stopped", "is killed"} {
			name := strings.ReplaceAll(how, " ", "-")
			file := filepath.Join(n.dir, name)
			then := "exec sleep 1000"
			if how == "exits" {
				then = "exit 4"
			}
			id := n.run(sb, daemonConfig(t, name, file, then, false))
			daemon := readPID(t, file)
			switch how {
			case "is stopped":
				n.stop(id, 30)
			case "is killed":
				n.stop(id, 0)
			}
			st := n.wait(id)
			if alive(daemon) {
				t.Errorf("process 1 %s: the daemon %d is alive after %v", how, daemon, st)
			}
			if how == "exits" && st.GetExitCode() != 4 {
				t.Errorf("status %v", st)
			}
		}
		if st := n.status(other); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the other container has ended as well: %v", st)
		}
	})
}

// A daemon that has even changed its marker is found by its cgroup, or by descent as soon as no other container runs.
//
// spec: TERM-4
func TestHiddenDaemon(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		file := filepath.Join(n.dir, "hidden")
		id := n.run(n.sandbox("hidden"), daemonConfig(t, "c", file, "exec sleep 1000", true))
		daemon := readPID(t, file)
		n.stop(id, 30)
		if alive(daemon) {
			t.Error("the daemon is alive")
		}
	})
}

// Processes that fork without end, each parent dying at once, are caught as well.
//
// spec: TERM-4
func TestForkChain(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		file := filepath.Join(n.dir, "count")
		script := filepath.Join(n.dir, "chain.sh")
		if err := os.WriteFile(script, []byte("echo x >> "+file+"\n/bin/sh "+script+" &\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		id := n.shell("chain", "/bin/sh "+script+" & exec sleep 1000")
		size := func() int64 {
			st, err := os.Stat(file)
			if err != nil {
				return 0
			}
			return st.Size()
		}
		eventually(t, "the chain runs", func() bool { return size() > 20 })
		n.stop(id, 0)
		before := size()
		n.reopen()
		if after := size(); after != before {
			t.Errorf("the chain went on after the stop: %d, %d", before, after)
		}
	})
}

// A pipe that someone outside holds open delays the end by a second, not for ever.
//
// spec: TERM-4
func TestPipesHeldOpen(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim writes the log")
	n := newNode(t)
	// The daemon inherits the container's output.
	id := n.shell("holder", "(trap '' HUP; sleep 1000) & (setsid sleep 1000 &) ; echo out; exit 0")
	if st := n.wait(id); st.GetExitCode() != 0 {
		t.Errorf("status %v", st)
	}
	if got := n.logText(id); got != "stdout F out\n" {
		t.Errorf("log %q", got)
	}
}

func TestConcurrentStops(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim stops containers")
	n := newNode(t)
	sb := n.sandbox("many")
	var ids []string
	for i := range 8 {
		ids = append(ids, n.run(sb, containerConfig("c"+string(rune('a'+i)), "sleep", "1000")))
	}
	var calls sync.WaitGroup
	for _, id := range ids {
		for range 3 {
			calls.Go(func() { n.stop(id, 10) })
		}
	}
	calls.Go(func() {
		if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Error(err)
		}
	})
	calls.Wait()
	for _, id := range ids {
		if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("status %v", st)
		}
	}
}
