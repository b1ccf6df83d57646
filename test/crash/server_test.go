package crash

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/client"
)

const binary = "../../bin/monoplane"

// patience is how long the test waits for what takes a fraction of it, also on a busy machine and after the longest
// deadlines of the agent.
const patience = 6 * time.Minute

// server is one run of the binary.
type server struct {
	process
	cmd    *exec.Cmd
	stderr *output
	stdout *output
	// ready gets something when the server says that it is, exited is closed when its process has ended.
	ready, exited chan struct{}
}

// output holds what a process prints.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// tail returns the last lines.
func (o *output) tail() string {
	text := o.String()
	return text[max(0, len(text)-8000):]
}

// smallTable is how many descriptors a server with a small table has.
const smallTable = 400

// launch starts a server of a run on a data directory and does not wait for it. Limit is how many descriptors it may
// have, 0 for what the test has.
func launch(t *testing.T, run, data string, limit int) *server {
	t.Helper()
	path, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"up", "--data-dir", data, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--node-name", "node",
		"--runtime", "host",
	}
	cmd := exec.Command(path, args...)
	if limit > 0 {
		limited := []string{"-c", `ulimit -n "$0"; exec "$@"`, strconv.Itoa(limit), path}
		cmd = exec.Command("/bin/sh", append(limited, args...)...)
	}
	return begin(t, run, cmd)
}

// begin starts a command that becomes a server of a run.
func begin(t *testing.T, run string, cmd *exec.Cmd) *server {
	t.Helper()
	cmd.Env = append(os.Environ(), envDir+"="+run)
	s := &server{
		cmd: cmd, stdout: &output{}, stderr: &output{}, ready: make(chan struct{}, 1), exited: make(chan struct{}),
	}
	cmd.Stderr = s.stderr
	// Ctrl-C in the terminal of the test is for the test.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; build it first: make build", err)
	}
	if s.process, err = identify(cmd.Process.Pid); err != nil {
		s.process = process{PID: cmd.Process.Pid} // it has ended already; no signal reaches it
	}
	go func() {
		lines := bufio.NewScanner(io.TeeReader(out, s.stdout))
		for lines.Scan() {
			if strings.Contains(lines.Text(), "is ready") {
				s.ready <- struct{}{}
			}
		}
		if err := lines.Err(); err != nil {
			fmt.Fprintln(s.stdout, "this is not looked at any further:", err)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // the exit code of a killed process says nothing
		close(s.exited)
	}()
	return s
}

// untilReady waits until a server is ready.
func (s *server) untilReady() error {
	select {
	case <-s.ready:
		return nil
	case <-s.exited:
		return fmt.Errorf("the server ended before it was ready")
	case <-time.After(patience):
		return fmt.Errorf("the server was not ready after %v; it said:\n%s\nthere are:\n%s\n%s", patience, s.stderr.tail(),
			others(), s.stacks())
	}
}

// others says how the processes stand that a server may wait for.
func others() string {
	var b strings.Builder
	all, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, comm := range all {
		name, _ := os.ReadFile(comm)
		if !bytes.HasPrefix(name, []byte("monoplane")) {
			continue
		}
		dir := filepath.Dir(comm)
		stat, _ := os.ReadFile(dir + "/stat") // it may have ended
		_, state, _ := strings.Cut(string(stat), ") ")
		files, _ := os.ReadDir(dir + "/fd")
		fmt.Fprintf(&b, "%s %s: state and parent %.12s, %d files\n", filepath.Base(dir), bytes.TrimSpace(name), state,
			len(files))
		tasks, _ := filepath.Glob(dir + "/task/*/wchan")
		for _, task := range tasks {
			where, _ := os.ReadFile(task)
			fmt.Fprintf(&b, "  thread %s waits in %s\n", filepath.Base(filepath.Dir(task)), where)
		}
	}
	return b.String()
}

// stacks makes the server print what its goroutines do, and ends it.
func (s *server) stacks() string {
	_ = s.signal(unix.SIGCONT)
	_ = s.signal(unix.SIGQUIT) // both: it may have ended
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
	}
	text := s.stderr.String()
	if i := strings.Index(text, "SIGQUIT"); i >= 0 {
		return text[i:]
	}
	return "it gave no stacks"
}

// kill ends the server as a crash would.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended by itself, and been waited for
	<-s.exited
}

// ended says whether it has ended.
func (s *server) ended() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// address returns what the server said after a word.
func (s *server) address(word string) string {
	_, rest, _ := strings.Cut(s.stdout.String(), word)
	return strings.TrimPrefix(firstField(rest), "https://")
}

func firstField(text string) string {
	if f := strings.Fields(text); len(f) > 0 {
		return f[0]
	}
	return ""
}

func dial(ctx context.Context, dir string) (*client.Client, error) {
	cfg, err := client.LoadConfig(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return c, nil
}
