package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

const (
	// linger is how long the output of a plugin is waited for after its end: what it leaves running may hold it open.
	linger = time.Second
	// mostOutput is how much a plugin may say.
	mostOutput = 1 << 20
)

// runner starts plugins. Unlike libcni's own it ends what a plugin has started together with the plugin, and waits for
// nobody longer than the context lasts.
type runner struct{ version.PluginDecoder }

// FindInPath implements invoke.Exec.
func (*runner) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin implements invoke.Exec.
func (*runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, said := &limited{}, &limited{}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = linger
	runtime.LockOSThread() // the death signal comes with the end of the thread
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, fmt.Errorf("the plugin %s did not end in time and was killed: %w", path, context.Cause(ctx))
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // It has succeeded, and left something running.
		if out.cut {
			return nil, fmt.Errorf("the plugin %s says more than %d bytes", path, mostOutput)
		}
		return out.kept, nil
	}
	return nil, failure(filepath.Base(path), err, out, said)
}

// failure is what a plugin says of its own failure: as the specification wants it on its output, or anyhow.
func failure(name string, err error, out, said *limited) error {
	told := &types.Error{}
	if json.Unmarshal(out.kept, told) == nil && told.Msg != "" {
		return told
	}
	text := strings.TrimSpace(strings.TrimSpace(string(said.kept)) + " " + strings.TrimSpace(string(out.kept)))
	if text == "" {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %w: %s", name, err, text[:min(len(text), 1024)])
}

// limited keeps the beginning of what is written.
type limited struct {
	kept []byte
	cut  bool
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(len(p), mostOutput-len(l.kept))]
	l.kept, l.cut = append(l.kept, keep...), l.cut || len(keep) < len(p)
	return len(p), nil
}
