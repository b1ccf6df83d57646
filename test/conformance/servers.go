package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long something is waited for that takes a fraction of it on an idle machine.
const patience = 2 * time.Minute

// process is a program that runs until it is stopped.
type process struct {
	cmd    *exec.Cmd
	output *capture
	ended  chan struct{}
}

// launch starts a program; what it prints is kept for errors.
func launch(path string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), output: &capture{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.Env = environment()
	// A process group of its own, so that a Ctrl-C at the tests' terminal does not reach it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // That it has ended is what counts.
		close(p.ended)
	}()
	return p, nil
}

// stop ends the program with SIGTERM, or with SIGKILL when it does not listen.
func (p *process) stop() error { return p.end(syscall.SIGTERM) }

// interrupt is stop with SIGINT, on which Monoplane stops its pods first.
func (p *process) interrupt() error { return p.end(syscall.SIGINT) }

func (p *process) end(sig syscall.Signal) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	_ = p.cmd.Process.Signal(sig) // It may have ended by now.
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		err := p.cmd.Process.Kill()
		<-p.ended
		return errors.Join(fmt.Errorf("%s did not end on %s", p.cmd.Path, sig), err)
	}
}

// until polls, until the answer is yes, the program has ended, or patience has.
func (p *process) until(what string, ask func() error) error {
	end := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s: the program has ended: %w\n%s", what, err, p.output)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w\n%s", what, err, p.output)
		}
	}
}

// environment is that of the tests without the variables that change what is tested.
func environment(extra ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MONOPLANE_") && !strings.HasPrefix(e, "KUBE") {
			env = append(env, e)
		}
	}
	return append(env, extra...)
}

// server is a cluster that the scripts run against.
type server struct {
	kubeconfig string
	stop       func() error
}

// startMonoplane starts the monoplane program with nodes as the flags say.
func startMonoplane(program, dir string, flags ...string) (*server, error) {
	data := filepath.Join(dir, "data")
	p, err := launch(program, append([]string{"up", "--data-dir", data, "--listen", "127.0.0.1:0",
		"--grpc-listen", "127.0.0.1:0", "--node-name", "node", "--unsafe-no-fsync", "--runtime", "host",
		"--default-storage-class", ""}, flags...)...)
	if err != nil {
		return nil, err
	}
	err = p.until("start of monoplane", func() error {
		if !strings.Contains(p.output.String(), "Ctrl-C stops") {
			return errors.New("it has not said that it is ready")
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, p.interrupt())
	}
	return &server{filepath.Join(data, "kubeconfig"), p.interrupt}, nil
}

// inNamespace writes a kubeconfig whose commands are about a namespace.
func (s *server) inNamespace(ctx context.Context, kubectl, dir, namespace string, env []string) (string, error) {
	data, err := os.ReadFile(s.kubeconfig)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"config", "set-context", "--current", "--namespace=" + namespace},
		{"create", "namespace", namespace},
		{"wait", "--for=create", "serviceaccount/default", "--timeout=60s"},
		{"wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=60s"},
	} {
		out, err := command(ctx, env, kubectl, append([]string{"--kubeconfig", path}, args...)...)
		if err != nil {
			return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return path, nil
}

// command runs kubectl, and returns what it prints.
func command(ctx context.Context, env []string, kubectl string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, kubectl, args...)
	cmd.Env = env
	return cmd.CombinedOutput()
}

// capture holds what a process prints.
type capture struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}
