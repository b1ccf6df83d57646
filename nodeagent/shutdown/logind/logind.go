// Package logind learns from systemd that the machine is about to go down, and holds that up while pods end. It holds
// a delay lock of systemd-logind, over D-Bus, as kubelets do (spec: DISR-4), and lets go of it when the pods have
// ended; logind waits no longer than its own InhibitDelayMaxSec.
//
// A machine without a system bus, or without logind on it, is no error: then SIGTERM alone tells. A bus that goes away
// is looked for again, and what has begun meanwhile goes on.
package logind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

// Config says what a Watcher does. Down, Up and Period are required.
type Config struct {
	// Address is the bus's; the system bus when it is empty.
	Address string
	// Down ends the pods, and returns when they have ended, or ctx ends. Up says that the machine goes on after all.
	Down func(ctx context.Context) error
	Up   func()
	// Period is how long Down may take.
	Period time.Duration
	// Logger defaults to none.
	Logger *slog.Logger
}

// Watcher holds the lock and waits for the machine to go down:
//
//	            bus found, lock taken
//	looking ---------------------------> holding
//	   ^                                 |    ^
//	   | bus lost       PrepareForShutdown    |
//	   |                          (true) |    | PrepareForShutdown(false): Up, lock taken again
//	   |                                 v    |
//	   +------------------------------- ending ----------> released (the lock), when Down has returned
//
// Losing the bus releases the lock, and ends nothing that has begun.
type Watcher struct {
	cfg Config

	// stop ends Down while it runs; nil before the machine goes down. Its end closes ended.
	stop  context.CancelFunc
	ended chan struct{}
	// lock is held while it is open; nil for none.
	lock *os.File
}

// New returns a watcher that does nothing before Run.
func New(cfg Config) *Watcher {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watcher{cfg: cfg}
}

// What logind is on the bus.
const (
	service = "org.freedesktop.login1"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
	prepare = "PrepareForShutdown"
)

const (
	// callTimeout is how long the bus may take for an answer.
	callTimeout = 10 * time.Second
	// leastRetry and mostRetry are the times after which a lost bus is looked for again.
	leastRetry = time.Second
	mostRetry  = time.Minute
)

// errNone means that nobody on this machine would tell.
var errNone = errors.New("no systemd-logind to ask")

// Run works until ctx ends, and returns its error. Where there is no bus, or no logind, it says so once.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.wait()
	said := false
	for wait := leastRetry; ctx.Err() == nil; wait = min(2*wait, mostRetry) {
		held, err := w.watch(ctx)
		w.release()
		switch {
		case ctx.Err() != nil:
		case held:
			w.cfg.Logger.Warn("systemd-logind is out of reach; its lock is taken again when it is back", "error", err)
			wait = leastRetry
		case !said:
			said = true
			w.cfg.Logger.Info("only SIGTERM says when this machine goes down", "reason", err)
		}
		if errors.Is(err, errNone) {
			<-ctx.Done()
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return ctx.Err()
}

// wait stops what runs, and waits for its end.
func (w *Watcher) wait() {
	if w.stop != nil {
		w.stop()
		<-w.ended
	}
}

// connect returns a connection to the bus that ends with ctx.
func (w *Watcher) connect(ctx context.Context, cancel context.CancelFunc) (*dbus.Conn, error) {
	late := time.AfterFunc(callTimeout, cancel)
	defer late.Stop()
	if w.cfg.Address != "" {
		return dbus.Connect(w.cfg.Address, dbus.WithContext(ctx))
	}
	return dbus.ConnectSystemBus(dbus.WithContext(ctx))
}

// watch works until the bus is lost or ctx ends. Held says that it held the lock.
func (w *Watcher) watch(ctx context.Context) (held bool, err error) {
	connected, disconnect := context.WithCancel(ctx)
	defer disconnect()
	conn, err := w.connect(connected, disconnect)
	if errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("%w: %w", errNone, err)
	}
	if err != nil {
		return false, err
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 8)
	conn.Signal(signals)
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = conn.AddMatchSignalContext(asking, dbus.WithMatchSender(service), dbus.WithMatchObjectPath(object),
		dbus.WithMatchInterface(manager), dbus.WithMatchMember(prepare))
	if err != nil {
		return false, err
	}
	if err := w.take(asking, conn); err != nil {
		var refused dbus.Error
		if errors.As(err, &refused) && refused.Name == "org.freedesktop.DBus.Error.ServiceUnknown" {
			err = fmt.Errorf("%w: %w", errNone, err)
		}
		return false, err
	}
	w.compare(asking, conn)
	// It may have begun, or been called off, while nobody listened.
	if down, err := property[bool](asking, conn, "PreparingForShutdown"); err == nil {
		w.turn(ctx, conn, down)
	}
	for {
		var ended chan struct{}
		if w.lock != nil {
			ended = w.ended
		}
		select {
		case s, ok := <-signals:
			if !ok {
				return true, errors.New("the bus has closed the connection")
			}
			if down, ok := announced(s); ok {
				w.turn(ctx, conn, down)
			}
		case <-ended:
			w.release() // the machine need not wait any longer
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// announced reads a signal of the bus.
func announced(s *dbus.Signal) (down, ok bool) {
	if s.Name != manager+"."+prepare || len(s.Body) != 1 {
		return false, false
	}
	down, ok = s.Body[0].(bool)
	return down, ok
}

// turn begins when the machine goes down, and goes back when it does not after all.
func (w *Watcher) turn(ctx context.Context, conn *dbus.Conn, down bool) {
	switch {
	case down:
		w.begin(ctx)
	case w.stop != nil:
		w.wait()
		w.stop, w.ended = nil, nil
		w.cfg.Logger.Warn("the machine does not go down after all; pods that were ended stay so")
		w.cfg.Up()
		if w.lock == nil {
			asking, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if err := w.take(asking, conn); err != nil {
				w.cfg.Logger.Error("the next shutdown of the machine will not wait for its pods", "error", err)
			}
		}
	}
}

// begin ends the pods, unless that was begun before.
func (w *Watcher) begin(ctx context.Context) {
	if w.stop != nil {
		return
	}
	w.cfg.Logger.Warn("the machine goes down")
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	w.stop, w.ended = stop, ended
	go func() {
		defer close(ended)
		if err := w.cfg.Down(running); err != nil && running.Err() == nil {
			w.cfg.Logger.Error("not all pods have ended before the machine goes down", "error", err)
		}
	}()
}

// take asks logind to delay what shuts the machine down.
func (w *Watcher) take(ctx context.Context, conn *dbus.Conn) error {
	var fd dbus.UnixFD
	err := conn.Object(service, object).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "monoplane",
		"pods are ended in the order of their priority", "delay").Store(&fd)
	if err != nil {
		return fmt.Errorf("systemd-logind gives no delay lock: %w", err)
	}
	w.lock = os.NewFile(uintptr(fd), "delay lock of systemd-logind")
	return nil
}

// compare says when logind will not wait as long as pods may take.
func (w *Watcher) compare(ctx context.Context, conn *dbus.Conn) {
	most, err := property[uint64](ctx, conn, "InhibitDelayMaxUSec")
	if err != nil {
		w.cfg.Logger.Warn("systemd-logind does not say how long it waits for pods to end", "error", err)
		return
	}
	if d := time.Duration(most) * time.Microsecond; d < w.cfg.Period {
		w.cfg.Logger.Warn("systemd-logind waits less than pods may take; set InhibitDelayMaxSec in a file in "+
			"/etc/systemd/logind.conf.d and reload systemd-logind", "waits", d, "pods", w.cfg.Period)
	}
}

func property[T any](ctx context.Context, conn *dbus.Conn, name string) (T, error) {
	var v dbus.Variant
	err := conn.Object(service, object).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager,
		name).Store(&v)
	got, ok := v.Value().(T)
	if err == nil && !ok {
		err = fmt.Errorf("%s is of type %s", name, v.Signature())
	}
	return got, err
}

// release lets go of the lock.
func (w *Watcher) release() {
	if w.lock != nil {
		_ = w.lock.Close() // nobody reads or writes it
		w.lock = nil
	}
}
