package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"monoplane.dev/client"
)

// process is a running `monoplane up`.
type process struct {
	cmd   *exec.Cmd
	dir   string
	ready time.Duration // from exec to the line that says so
}

// startProcess runs the binary on dir and waits until it says that it is ready. Without args that say otherwise,
// containers are processes of this machine.
func startProcess(ctx context.Context, e *env, dir string, args ...string) (*process, error) {
	args = append([]string{"up", "--data-dir", dir, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0",
		"--node-name", "node", "--runtime", "host"}, args...)
	cmd := exec.CommandContext(ctx, e.binary, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), "is ready") {
			continue
		}
		p := &process{cmd: cmd, dir: dir, ready: time.Since(begin)}
		go func() {
			for lines.Scan() {
			}
		}()
		return p, nil
	}
	return nil, fmt.Errorf("%s ended before it was ready: %w", e.binary, errors.Join(lines.Err(), cmd.Wait()))
}

// down ends the process and all that it has on the machine.
func (p *process) down() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// stop ends the process as an upgrade would.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

func (p *process) client(ctx context.Context) (*client.Client, error) {
	cfg, err := client.LoadConfig(p.dir + "/kubeconfig")
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, cfg)
}

// resident returns the process's resident memory in MB.
func (p *process) resident() (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", p.cmd.Process.Pid)
}

// cpu returns the processor time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100, err
}
