package logind_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"

	"monoplane.dev/nodeagent/shutdown/logind"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
	// long is more than anything here takes.
	long = time.Minute
)

// bus starts a dbus-daemon of the test's own at a socket in dir.
func bus(t *testing.T, dir string) (address string, stop func()) {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("there is no dbus-daemon on this machine")
	}
	config := filepath.Join(dir, "bus.conf")
	text := fmt.Sprintf(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>custom</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow own="*"/><allow send_destination="*" eavesdrop="true"/>
<allow eavesdrop="true"/></policy></busconfig>`,
		filepath.Join(dir, "bus"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--nofork", "--nopidfile", "--nosyslog", "--print-address", "--config-file="+config)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), stop
}

// login is a logind of the test's own.
type login struct {
	t    *testing.T
	conn *dbus.Conn

	mu        sync.Mutex
	preparing bool
	// ours are the ends of locks that were given away, and may be closed when they are there.
	ours []*os.File
	// locks has, for each lock that was given, what is closed when it is released; asked one for each question.
	locks chan chan struct{}
	asked chan struct{}
}

// serve makes a logind on a bus.
func serve(t *testing.T, address string, preparing bool) *login {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*long)
	t.Cleanup(cancel)
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &login{t: t, conn: conn, preparing: preparing, locks: make(chan chan struct{}, 8),
		asked: make(chan struct{}, 64)}
	for of, v := range map[string]any{manager: inhibitor{l}, "org.freedesktop.DBus.Properties": properties{l}} {
		if err := conn.Export(v, object, of); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.RequestName("org.freedesktop.login1", dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return l
}

type inhibitor struct{ l *login }

// Inhibit gives a lock.
func (i inhibitor) Inhibit(what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	r, w, err := os.Pipe()
	if err != nil || what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(errors.New("no lock"))
	}
	i.l.mu.Lock()
	defer i.l.mu.Unlock()
	i.l.ours = append(i.l.ours, w)
	released := make(chan struct{})
	go func() {
		defer close(released)
		defer r.Close()
		_, _ = io.Copy(io.Discard, r)
	}()
	i.l.locks <- released
	return dbus.UnixFD(w.Fd()), nil
}

type properties struct{ l *login }

// Get answers with a property.
func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.l.asked <- struct{}{}
	if name == "InhibitDelayMaxUSec" {
		return dbus.MakeVariant(uint64(5_000_000)), nil
	}
	return dbus.MakeVariant(p.l.preparing), nil
}

// released waits until a lock is let go of by a watcher that was seen to have it.
func (l *login) released(lock <-chan struct{}) {
	l.t.Helper()
	l.mu.Lock()
	for _, w := range l.ours {
		_ = w.Close()
	}
	l.ours = nil
	l.mu.Unlock()
	wait(l.t, lock, "release of the lock")
}

// lock waits until a lock was given.
func (l *login) lock() <-chan struct{} {
	l.t.Helper()
	return wait(l.t, l.locks, "lock")
}

// announce says whether the machine goes down.
func (l *login) announce(down bool) {
	l.t.Helper()
	l.mu.Lock()
	l.preparing = down
	l.mu.Unlock()
	if err := l.conn.Emit(object, manager+".PrepareForShutdown", down); err != nil {
		l.t.Fatal(err)
	}
}

func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(long):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// text is a log that can be read while it is written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// rig is a watcher that runs.
type rig struct {
	log text
	// down has, for each shutdown that was begun, what ends it; up one for each that was taken back.
	down chan chan error
	up   chan struct{}
	// cut has one for each shutdown whose context ended.
	cut chan struct{}
}

func run(t *testing.T, address string) *rig {
	t.Helper()
	r := &rig{down: make(chan chan error, 8), up: make(chan struct{}, 8), cut: make(chan struct{}, 8)}
	w := logind.New(logind.Config{
		Address: address, Period: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
		Down: func(ctx context.Context) error {
			end := make(chan error)
			r.down <- end
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				r.cut <- struct{}{}
				return ctx.Err()
			}
		},
		Up: func() { r.up <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := wait(t, ended, "end of Run"); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func open(released <-chan struct{}) bool {
	select {
	case <-released:
		return false
	default:
		return true
	}
}

// The machine waits until the pods have ended, and no longer; when it goes on after all, the next time is like the
// first. spec: DISR-4
func TestShutdownIsDelayed(t *testing.T) {
	address, _ := bus(t, t.TempDir())
	l := serve(t, address, false)
	r := run(t, address)
	for range 2 {
		lock := l.lock()
		l.announce(true)
		end := wait(t, r.down, "shutdown")
		if !open(lock) {
			t.Error("the lock was released before the pods had ended")
		}
		end <- nil
		l.released(lock)
		l.announce(false)
		wait(t, r.up, "return")
	}
	// Taken back while pods are ending, the lock is kept.
	lock := l.lock()
	l.announce(true)
	wait(t, r.down, "shutdown")
	l.announce(true) // said twice, done once
	l.announce(false)
	wait(t, r.cut, "end of the shutdown")
	wait(t, r.up, "return")
	l.announce(true)
	wait(t, r.down, "shutdown after that") <- errors.New("a pod is stuck")
	l.released(lock)
	if text := r.log.String(); !strings.Contains(text, "waits less than pods may take") ||
		!strings.Contains(text, "a pod is stuck") {
		t.Errorf("log:\n%s", text)
	}
}

// What was said before anybody listened counts. spec: DISR-4
func TestShutdownThatHasBegun(t *testing.T) {
	address, _ := bus(t, t.TempDir())
	l := serve(t, address, true)
	r := run(t, address)
	lock := l.lock()
	wait(t, r.down, "shutdown") <- nil
	l.released(lock)
}

// A bus that is gone is looked for again, and what has begun is not disturbed by that. spec: DISR-4
func TestBusIsLost(t *testing.T) {
	dir := t.TempDir()
	address, stop := bus(t, dir)
	l := serve(t, address, false)
	r := run(t, address)
	lock := l.lock()
	l.announce(true)
	end := wait(t, r.down, "shutdown")
	stop()
	l.released(lock)
	if err := os.Remove(filepath.Join(dir, "bus")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	address, _ = bus(t, dir)
	l = serve(t, address, true)
	lock = l.lock()
	wait(t, l.asked, "question of the watcher with its lock")
	if len(r.cut) > 0 || len(r.down) > 0 {
		t.Error("the shutdown was disturbed")
	}
	end <- nil
	l.released(lock)
	if text := r.log.String(); !strings.Contains(text, "out of reach") {
		t.Errorf("log:\n%s", text)
	}
}

// Without anybody who would tell there is one line about it. spec: DISR-4
func TestNobodyTells(t *testing.T) {
	with, _ := bus(t, t.TempDir())
	for name, address := range map[string]string{
		"no bus":    "unix:path=" + filepath.Join(t.TempDir(), "none"),
		"no logind": with,
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, address)
			deadline := time.After(long)
			for !strings.Contains(r.log.String(), "\n") {
				select {
				case <-time.After(time.Millisecond):
				case <-deadline:
					t.Fatal("nothing was said")
				}
			}
			if text := r.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "only SIGTERM says") {
				t.Errorf("log:\n%s", text)
			}
		})
	}
}
