package nodens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/network/nodens/internal/helper"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// logFile takes what a helper has to say when it can say it to nobody.
const logFile = "node.log"

// find returns the helper that there is, or starts one. Callers hold the lock of the directory.
func (r *remote) find(ctx context.Context, cfg *Config, lock *os.File) (hello wire.Hello, isNew bool, err error) {
	reply, _, err := r.call(ctx, &wire.Request{})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		cfg.Log.Warn("the helper of the node namespace does not answer, and is replaced by its spare")
		if err = r.replaceHung(ctx); err == nil {
			reply, _, err = r.call(ctx, &wire.Request{})
		}
		if errors.Is(err, unix.ESRCH) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			// The helper has ended, and its spare hangs, perhaps for ever.
			cfg.Log.Warn("the spare of the node namespace's helper does not answer either: pods are connected anew")
			if err = r.killAll(helper.Argv0, helper.SpareArgv0); err == nil {
				err = errNoHelper
			}
		}
	}
	if err == nil {
		reply.Hello, err = r.sameProgram(ctx, cfg, reply.Hello)
	}
	if err == nil && reply.Hello.Version != wire.Version {
		cfg.Log.Warn("the helper of the node namespace is of another version: pods are connected anew",
			"version", reply.Hello.Version)
		if err := r.end(ctx); err != nil {
			return wire.Hello{}, false, err
		}
		err = errNoHelper
	}
	if errors.Is(err, errNoHelper) {
		if err := r.start(ctx, cfg, lock); err != nil {
			return wire.Hello{}, false, err
		}
		isNew = true
		reply, _, err = r.call(ctx, &wire.Request{})
	}
	if err != nil {
		return wire.Hello{}, isNew, err
	}
	return reply.Hello, isNew, nil
}

// sameProgram has a helper of another program become one of this process's, without an interruption of what pods do. A
// helper that cannot is left as it is. Callers hold the lock of the directory.
func (r *remote) sameProgram(ctx context.Context, cfg *Config, hello wire.Hello) (wire.Hello, error) {
	own, err := wire.OwnProgram()
	if err != nil {
		return hello, err
	}
	// A helper that is killed while it is replaced leaves its spare, which is of the old program.
	for range 3 {
		if hello.Program == own {
			return hello, nil
		}
		cfg.Log.Info("the helper of the node namespace is of another program, and is replaced", "version", hello.Version)
		if err := r.replace(ctx); err != nil {
			if hello.Version == wire.Version {
				cfg.Log.Warn("the helper of the node namespace stays one of another program", "error", err)
			}
			return hello, ctx.Err()
		}
		reply, _, err := r.call(ctx, &wire.Request{})
		if err != nil {
			return hello, err
		}
		hello = reply.Hello
	}
	return hello, nil
}

// replace has the helper become a process of this program. Without an error it does that now, or has ended; its socket
// is answered again at once.
func (r *remote) replace(ctx context.Context) error {
	program, err := os.Open(wire.Self)
	if err != nil {
		return err
	}
	defer program.Close()
	reply, _, err := r.callOnce(ctx, &wire.Request{Replace: &wire.Replace{}}, program)
	switch {
	case reply == nil && errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
		return nil
	case err == nil:
		return errors.New("it is of a version that cannot be replaced")
	}
	return err
}

// start starts a helper in new namespaces, and returns when it listens.
func (r *remote) start(ctx context.Context, cfg *Config, lock *os.File) error {
	listen, err := r.bind()
	if err != nil {
		return fmt.Errorf("the socket of the node namespace: %w", err)
	}
	defer listen.Close()
	log, err := openAt(r.dir, logFile, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_APPEND|unix.O_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("the log of the helper: %w", err)
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	err = startIn(ctx, cfg, log, []*os.File{listen, r.dir, write, lock})
	write.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if n, _ := read.Read(make([]byte, 1)); n == 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("the helper of the node namespace does not begin to listen: %w", context.Cause(ctx))
		}
		said, _ := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/%s", r.dir.Fd(), logFile))
		return fmt.Errorf("the helper of the node namespace ended as it was started: %s",
			strings.TrimSpace(string(said[:min(len(said), 512)])))
	}
	return nil
}

func startIn(ctx context.Context, cfg *Config, log *os.File, files []*os.File) error {
	if !cfg.Rootless {
		err := launch(ctx, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}, nil, log, files)
		if !errors.Is(err, unix.EPERM) {
			return err
		}
		cfg.Log.Info("root may not make a network namespace here; the node namespace is made without", "err", err)
		cfg.Rootless = true
	}
	all := []userids.Maps{userids.Single()}
	if len(cfg.IDs.Users) > 0 && !cfg.IDs.IsSingle() {
		all = []userids.Maps{cfg.IDs, userids.Single()}
	}
	var err error
	for i, maps := range all {
		attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		maps.Prepare(attr)
		if err = launch(ctx, attr, &maps, log, files); err == nil {
			return nil
		}
		if i+1 < len(all) {
			cfg.Log.Warn("pods have one user only, since more ids cannot be mapped", "error", err)
		}
	}
	return fmt.Errorf("no user namespace can be made for the pod network: %w%s", err, WhyForbidden())
}

// launch starts a helper, and tells it to begin once it has its ids.
func launch(
	ctx context.Context, attr *syscall.SysProcAttr, maps *userids.Maps, log *os.File, files []*os.File,
) error {
	wait, begin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	defer begin.Close()
	attr.Setsid = true
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{helper.Argv0}, Dir: "/", Stderr: log, SysProcAttr: attr,
		Env: []string{"GOMAXPROCS=2", "GOGC=50", "GODEBUG=disablethp=1", "GORACE=atexit_sleep_ms=0",
			helper.First + "=1"},
		ExtraFiles: append(slices.Clone(files), wait)}
	if err := cmd.Start(); err != nil {
		return err
	}
	if maps != nil {
		err = maps.Apply(ctx, cmd.Process.Pid)
	}
	if err == nil {
		_, err = begin.Write([]byte{1})
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(err, cmd.Wait())
	}
	go func() { _ = cmd.Wait() }() // So that it is no zombie while this process lives.
	return nil
}

// WhyForbidden names the settings of the machine that keep user namespaces from being made or used, for the end of an
// error: it begins with a semicolon, and is empty where there is no such setting.
func WhyForbidden() string { return whyForbidden("/proc/sys") }

// whyForbidden does so for the settings in a directory.
func whyForbidden(settings string) string {
	var why []string
	for _, s := range []struct{ file, bad, remedy string }{
		{"user/max_user_namespaces", "0", "set it to 10000, say"},
		{"user/max_net_namespaces", "0", "set it to 10000, say"},
		{"kernel/unprivileged_userns_clone", "0", "set it to 1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "set it to 0, or give the program an AppArmor profile"},
	} {
		if v, err := os.ReadFile(filepath.Join(settings, s.file)); err == nil && strings.TrimSpace(string(v)) == s.bad {
			why = append(why, fmt.Sprintf("the setting %s is %s (%s)", strings.ReplaceAll(s.file, "/", "."), s.bad, s.remedy))
		}
	}
	if len(why) == 0 {
		return ""
	}
	return "; " + strings.Join(why, "; ")
}

// bind makes the socket anew.
func (r *remote) bind() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), helper.Socket)
	at := fmt.Sprintf("/proc/self/fd/%d/%s", r.dir.Fd(), helper.Socket)
	err = os.Remove(at)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: at})
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// end has the helper end, and waits until it has.
func (r *remote) end(ctx context.Context) error {
	var since time.Time // The helper has been dead since then.
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		_, pidfd, err := r.process(ctx)
		isDead := errors.Is(err, unix.ESRCH) // Its spare is not yet listening, or hangs.
		if !isDead {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		hangs := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil || isDead && time.Since(since) > answerTime
		switch {
		case errors.Is(err, errNoHelper):
			return nil
		case hangs:
			if err := r.killAll(helper.Argv0, helper.SpareArgv0); err != nil {
				return err
			}
		case err != nil && !isDead:
			return err
		}
		if err != nil {
			select {
			case <-ctx.Done():
				return fmt.Errorf("the helper of the node namespace does not end: %w", context.Cause(ctx))
			case <-time.After(pause):
				continue
			}
		}
		_, _, err = r.call(ctx, &wire.Request{End: &wire.End{}})
		if err != nil && !errors.Is(err, errNoHelper) {
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				if err = r.replaceHung(ctx); errors.Is(err, unix.ESRCH) { // Then its spare hangs.
					err = r.killAll(helper.Argv0, helper.SpareArgv0)
				}
			}
			if err != nil {
				pidfd.Close()
				return err
			}
		}
		err = ended(ctx, pidfd)
		pidfd.Close()
		if err != nil {
			return err
		}
	}
}

// ended waits for the end of a process.
func ended(ctx context.Context, pidfd *os.File) error {
	poll := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 100) // Milliseconds.
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("the helper of the node namespace does not end: %w", context.Cause(ctx))
		}
	}
}

func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
