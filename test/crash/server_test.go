package crash

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monoplane.dev/client"
)

const binary = "../../bin/monoplane"

// server is one run of the binary.
type server struct {
	cmd    *exec.Cmd
	stderr *strings.Builder
	// ready gets something when the server says that it is, exited is closed when its process has ended.
	ready, exited chan struct{}
}

// startServer starts the binary on dir and returns once it is ready. It must be ready within a minute, however
// busy the machine is.
func startServer(t *testing.T, dir string) *server {
	t.Helper()
	s := launch(t, dir)
	select {
	case <-s.ready:
		return s
	case <-s.exited:
		t.Fatalf("the server ended before it was ready: %s", s.stderr)
	case <-time.After(time.Minute):
		t.Fatalf("the server was not ready within a minute: %s", s.stderr)
	}
	return nil
}

// launch starts the server and does not wait for it.
func launch(t *testing.T, dir string) *server {
	t.Helper()
	path, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "up", "--data-dir", dir, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--node-name", "node")
	s := &server{cmd: cmd, stderr: &strings.Builder{}, ready: make(chan struct{}, 1), exited: make(chan struct{})}
	cmd.Stderr = s.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; build it first: make build", err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "is ready") {
				s.ready <- struct{}{}
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // the exit code of a killed process says nothing
		close(s.exited)
	}()
	return s
}

// kill ends the server as a crash would.
func (s *server) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
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
