package host

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// agentHelper is an agent that runs pods as fast as it can until it is killed. Every container appends its name to
// the file STARTS as it starts. What the runtime has acknowledged is printed.
func agentHelper() int {
	seed, _ := strconv.ParseInt(os.Getenv("SEED"), 10, 64)
	rnd := rand.New(rand.NewSource(seed))
	dir := os.Getenv("DIR")
	cfg := Config{Dir: dir, ClaimDir: os.Getenv("CLAIMS"), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		NoCgroups: rnd.Intn(2) == 0, CgroupParent: os.Getenv("PARENT")}
	var err error
	if at := os.Getenv("IMAGES"); at != "" {
		cfg.OCI, err = openImages(at)
	}
	var r *Runtime
	if err == nil {
		r, err = New(cfg)
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("up")
	ctx := context.Background()
	n := &node{dir: dir, logs: os.Getenv("LOGS")}
	for i := 0; ; i++ {
		sb, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(n,
			fmt.Sprintf("p%d-%d", seed, i))})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("sandbox", sb.GetPodSandboxId())
		for j := range 2 {
			script := fmt.Sprintf("echo p%d-%d-%d >> %s; echo hello; ", seed, i, j, os.Getenv("STARTS"))
			if rnd.Intn(2) == 0 {
				script += "exit 5"
			} else {
				script += "exec sleep 1000"
			}
			config := containerConfig(fmt.Sprintf("c%d", j), "/bin/sh", "-c", script)
			if onImages() {
				mounting(volumeImage, "data", "/mounted")(config)
			}
			c, err := r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(),
				Config: config})
			if err != nil {
				fmt.Println("error", err)
				return 1
			}
			fmt.Println("created", c.GetContainerId())
			if _, err := r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
				fmt.Println("error", err)
				return 1
			}
			fmt.Println("started", c.GetContainerId())
			switch rnd.Intn(4) {
			case 0:
				_, err = r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.GetContainerId(), Timeout: 10})
				fmt.Println("stopped", c.GetContainerId())
			case 1:
				_, err = r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.GetPodSandboxId()})
				fmt.Println("over", sb.GetPodSandboxId())
			}
			if err != nil {
				fmt.Println("error", err)
				return 1
			}
			if r.sandboxes[sb.GetPodSandboxId()].isGone() {
				break
			}
		}
	}
}

// An agent is killed with SIGKILL at random points, again and again. Whatever it was doing: what it had acknowledged
// is there, nothing was started twice, what runs is known and can be stopped, and what was recorded is unchanged.
//
// spec: SAFE-1, SAFE-2, DEL-10
func TestAgentIsKilled(t *testing.T) {
	t.Parallel()
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	seed := time.Now().UnixNano()
	if s := os.Getenv("MONOPLANE_TEST_SEED"); s != "" {
		seed, _ = strconv.ParseInt(s, 10, 64)
	}
	t.Logf("seed %d (set MONOPLANE_TEST_SEED to repeat)", seed)
	n := newNode(t)
	starts := filepath.Join(n.dir, "starts")
	rnd := rand.New(rand.NewSource(seed))
	acked := map[string]string{}
	for range rounds {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		for id, what := range runAgent(t, n, starts, rnd) {
			acked[id] = what
		}
		n.open()
		checkAcked(t, n, acked)
		// Whatever can be started is started now: at most once for every ID.
		list, err := n.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.GetContainers() {
			// A shim that ends at this moment takes its connection with it: then the sandbox is not ready a moment later.
			var err error
			eventually(t, "starting "+c.GetId(), func() bool {
				err = n.start(c.GetId())
				return status.Code(err) != codes.Unavailable ||
					n.sandboxState(c.GetPodSandboxId()) != runtimeapi.PodSandboxState_SANDBOX_READY
			})
			if ready := n.sandboxState(c.GetPodSandboxId()) == runtimeapi.PodSandboxState_SANDBOX_READY; ready && err != nil {
				t.Errorf("starting %s: %v", c.GetId(), err)
			}
		}
		if rnd.Intn(3) == 0 {
			checkStarts(t, n, starts)
			n.removeAll()
			clear(acked)
		}
	}
	checkStarts(t, n, starts)
}

// runAgent runs an agent for a moment and kills it. It returns what the agent had acknowledged, by ID.
func runAgent(t *testing.T, n *node, starts string, rnd *rand.Rand) map[string]string {
	t.Helper()
	cmd := exec.Command(testBinary(t))
	cmd.Env = append(os.Environ(), helperVariable+"=agent", "DIR="+n.dir, "LOGS="+n.logs, "CLAIMS="+n.cfg.ClaimDir,
		"STARTS="+starts, fmt.Sprint("SEED=", rnd.Int63()))
	if n.cfg.OCI != nil {
		cmd.Env = append(cmd.Env, "IMAGES="+n.images)
	}
	cmd.Stderr = testLog{t}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := map[string]string{}
	lines := bufio.NewScanner(out)
	var kill *time.Timer
	for lines.Scan() {
		what, id, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "up":
			kill = time.AfterFunc(time.Duration(rnd.Intn(60_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		case "error":
			t.Errorf("agent: %s", id)
		default:
			acked[id] = what
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("what the agent prints: %v", err)
	}
	if kill == nil {
		t.Fatal("the agent did not come up")
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // It was killed.
	return acked
}

func checkAcked(t *testing.T, n *node, acked map[string]string) {
	t.Helper()
	n.mu.RLock()
	defer n.mu.RUnlock()
	for id, what := range acked {
		if what == "sandbox" || what == "over" {
			sb := n.sandboxes[id]
			if sb == nil || what == "sandbox" && !sb.readyLocked() && !sb.ending || what == "over" && sb.readyLocked() {
				t.Errorf("%s %s: %+v", what, id, sb)
			}
			continue
		}
		c := n.containers[id]
		if c == nil {
			t.Errorf("%s %s is lost", what, id)
			continue
		}
		s := c.state
		switch {
		case what == "started" && s.Phase < shimwire.Running:
			t.Errorf("%s was started; phase %d", id, s.Phase)
		case what == "stopped" && s.Phase != shimwire.Exited:
			t.Errorf("%s was stopped; phase %d", id, s.Phase)
		case s.Phase == shimwire.Running && !alive(int(s.PID)):
			fresh, err := loadState(c.dir)
			if err != nil || fresh.Phase != shimwire.Exited {
				continue // Its end is under way.
			}
		case s.Reason == shimwire.ReasonUnknown:
			t.Errorf("%s has lost its exit code", id)
		}
	}
}

// checkStarts proves that no container was started twice.
func checkStarts(t *testing.T, n *node, starts string) {
	t.Helper()
	b, err := os.ReadFile(starts)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, id := range strings.Fields(string(b)) {
		if seen[id] {
			t.Errorf("container %s was started twice", id)
		}
		seen[id] = true
	}
	t.Logf("%d containers were started", len(seen))
}

func (n *node) removeAll() {
	n.t.Helper()
	list, err := n.ListPodSandbox(n.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, sb := range list.GetItems() {
		if err := n.remove(n.t.Context(), sb.GetId()); err != nil {
			n.t.Fatal(err)
		}
	}
}
