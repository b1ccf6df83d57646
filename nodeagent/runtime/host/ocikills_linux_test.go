package host

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// An agent that runs pods of images as fast as it can is killed at a random moment, and before that, each at a random
// moment, shims of its pods and programs that make their containers. Whatever was under way: the runtime that comes
// after can remove all of it, and on the machine there is as much as before: no process, mount, cgroup or root of a
// container. Namespaces need one of these, or a descriptor, to live.
//
// MONOPLANE_TEST_ROUNDS says how often, instead of 20 times; MONOPLANE_TEST_SEED repeats.
//
// spec: SAFE-1, SAFE-2
func TestRootImageKills(t *testing.T) {
	rounds, seed := 20, time.Now().UnixNano()
	if s := os.Getenv("MONOPLANE_TEST_ROUNDS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("MONOPLANE_TEST_SEED"); s != "" {
		seed, _ = strconv.ParseInt(s, 10, 64)
	}
	t.Logf("seed %d (set MONOPLANE_TEST_SEED to repeat)", seed)
	rnd := rand.New(rand.NewSource(seed))
	n := newNode(t, withImages(t), short(time.Second, never), func(c *Config) {
		c.CgroupParent = fmt.Sprint("/monoplane-test-", os.Getpid())
	})
	t.Cleanup(func() {
		group := n.cgroups.Pod("x")
		for _, dir := range append(group.V1, group.Unified) {
			if dir != "" {
				_ = os.Remove(filepath.Dir(dir)) // Which only works once it is empty.
			}
		}
	})
	store := n.cfg.OCI.Images.(*testStore)
	killed := map[string]int{}
	before := firstsWithoutShim(t)
	for round := range rounds {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		hosts := killAtRandom(t, n, rnd, killed)
		n.open()
		n.removeAll()
		roots, err := store.Roots()
		if err != nil || len(roots) > 0 {
			t.Fatalf("round %d: roots of containers are left: %v %v", round, roots, err)
		}
		n.leftNoMounts()
		if left := groupsOf(n); len(left) > 0 {
			t.Fatalf("round %d: cgroups are left: %q", round, left)
		}
		if left := processesOf(t, n, hosts); len(left) > 0 {
			t.Fatalf("round %d: processes are left: %q", round, left)
		}
		eventually(t, "each process 1 that containers share ends with its shim", func() bool {
			return !slices.ContainsFunc(firstsWithoutShim(t), func(pid int) bool { return !slices.Contains(before, pid) })
		})
	}
	t.Logf("killed: %v", killed)
	// On a machine that is slow, few rounds may end before there is a helper to kill.
	if some := killed["helper"] + killed["shim"]; rounds >= 20 && some == 0 || rounds >= 100 &&
		(killed["helper"] == 0 || killed["shim"] == 0) {
		t.Errorf("only these were killed: %v", killed)
	}
}

// killAtRandom runs an agent, kills what belongs to it now and then, and the agent in the end.
func killAtRandom(t *testing.T, n *node, rnd *rand.Rand, killed map[string]int) (hosts string) {
	t.Helper()
	seed := rnd.Int63()
	cmd := exec.CommandContext(t.Context(), testBinary(t))
	cmd.Env = append(os.Environ(), helperVariable+"=agent", "DIR="+n.dir, "LOGS="+n.logs, "CLAIMS="+n.cfg.ClaimDir,
		"STARTS=/dev/null", "IMAGES="+n.images, "MONOPLANE_TEST_IMAGES=1", "PARENT="+n.cfg.CgroupParent,
		fmt.Sprint("SEED=", seed))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hosts = fmt.Sprintf("p%d-", seed)
	up, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		lines := bufio.NewScanner(out)
		for first := true; lines.Scan(); first = false {
			if first {
				close(up)
			}
		}
		if err := lines.Err(); err != nil {
			t.Errorf("what the agent prints: %v", err)
		}
	}()
	select {
	case <-up:
	case <-over:
		t.Fatal("the agent did not come up")
	}
	end := time.After(time.Duration(rnd.Intn(500)) * time.Millisecond)
	for {
		name, kind, often := "monoplane-oci", "helper", 3 // Which live for a moment only.
		if rnd.Intn(4) == 0 {
			name, kind, often = shim.Argv0, "shim", 20
		}
		all, _ := sys.Descendants([]int{cmd.Process.Pid})
		for _, p := range all {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
			if strings.HasPrefix(string(line), name) && rnd.Intn(often) == 0 && sys.Signal(p, unix.SIGKILL) == nil {
				killed[kind]++
			}
		}
		select {
		case <-end:
			_ = cmd.Process.Kill()
			<-over
			_ = cmd.Wait() // It was killed.
			killed["agent"]++
			return hosts
		case <-over: // What it needs was killed.
			_ = cmd.Wait()
			return hosts
		default:
		}
	}
}

// groupsOf lists the cgroups of pods, of which there are to be none.
func groupsOf(n *node) (left []string) {
	group := n.cgroups.Pod("x")
	for _, dir := range append(group.V1, group.Unified) {
		if dir != "" {
			pods, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "monoplane-*"))
			left = append(left, pods...)
		}
	}
	return left
}

// processesOf lists those that run for a node: shims and helpers, and containers by their host name.
func processesOf(t *testing.T, n *node, hosts string) (left []string) {
	t.Helper()
	all, err := sys.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		at := fmt.Sprintf("/proc/%d/", pid)
		line, _ := os.ReadFile(at + "cmdline")
		cwd, _ := os.Readlink(at + "cwd")
		environ, _ := os.ReadFile(at + "environ")
		if pid != os.Getpid() && (strings.Contains(string(line), n.dir) || strings.HasPrefix(cwd, n.dir) ||
			strings.Contains(string(environ), "HOSTNAME="+hosts)) {
			left = append(left, fmt.Sprintf("%d %q", pid, line))
		}
	}
	return left
}

// firstsWithoutShim lists the processes 1 that containers share, of all pods of the machine, whose parent is no shim.
func firstsWithoutShim(t *testing.T) (left []int) {
	t.Helper()
	all, err := sys.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if string(line) != "monoplane-init\x00reap\x00" {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		parent := 0
		for text := range strings.Lines(string(status)) {
			_, _ = fmt.Sscanf(text, "PPid: %d", &parent)
		}
		above, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
		if len(status) > 0 && !strings.HasPrefix(string(above), shim.Argv0) {
			left = append(left, pid)
		}
	}
	return left
}
