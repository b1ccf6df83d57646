package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap returns a logger for etcd that writes to lg, and stops the calling goroutine, rather than the
// process, when etcd wants to end it. etcd tells everything it does at its level Info, and warns of things that do not
// concern us, so both are our Debug.
func newZap(lg *slog.Logger, f *failure) *zap.Logger {
	hook := fatalHook{f}
	return zap.New(slogCore{lg: lg.With("component", "etcd"), f: f}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// expected is an entry at level Error that every new data directory makes once: the version of its schema can
// be told only after the first snapshot, and etcd tries again by itself.
const expected = "failed to update storage version"

// notRepaired is how etcd gives up on a log that ends in a half-written record. Why it could not be cut there, such as
// that the disk is full, stands in the warning before alone.
const notRepaired = "failed to repair WAL"

// slogCore hands etcd's log entries to slog.
type slogCore struct {
	lg     *slog.Logger
	f      *failure
	fields []zapcore.Field
}

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.DebugLevel:
		return slog.LevelDebug - 4
	case l <= zapcore.WarnLevel:
		return slog.LevelDebug
	default:
		return slog.LevelError
	}
}

// Enabled keeps fatal and panic entries, because their hooks must run whatever the level, and warnings, which may name
// the cause of such an entry.
func (c slogCore) Enabled(l zapcore.Level) bool {
	return l >= zapcore.WarnLevel || c.lg.Enabled(context.Background(), slogLevel(l))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = append(c.fields[:len(c.fields):len(c.fields)], fields...)
	return c
}

func (c slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Level > zapcore.ErrorLevel {
		return nil // the hook makes an error of it, which is reported once
	}
	if err := errorOf(fields); err != nil {
		c.f.warned.Store(&err)
	}
	level := slogLevel(e.Level)
	if e.Message == expected {
		level = slog.LevelDebug
	}
	if !c.lg.Enabled(context.Background(), level) {
		return nil
	}
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(enc)
	}
	for _, f := range fields {
		f.AddTo(enc)
	}
	attrs := make([]slog.Attr, 0, len(enc.Fields))
	for k, v := range enc.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	c.lg.LogAttrs(context.Background(), level, e.Message, attrs...)
	return nil
}

func (c slogCore) Sync() error { return nil }

// failure remembers the first reason for which etcd gave up.
type failure struct {
	once sync.Once
	done chan struct{}
	err  error
	// warned is the last error that was logged and did not end etcd.
	warned atomic.Pointer[error]
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// get returns nil until set has been called.
func (f *failure) get() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// fatalHook replaces os.Exit and panic at the end of a fatal log entry.
type fatalHook struct{ f *failure }

func (h fatalHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := fmt.Errorf("etcd: %s", e.Message)
	if cause := errorOf(fields); cause != nil {
		err = fmt.Errorf("%w: %w%s", err, cause, remedy(cause))
	}
	if warned := h.f.warned.Load(); warned != nil && e.Message == notRepaired {
		err = fmt.Errorf("%w: %w", err, *warned)
	}
	h.f.set(err)
	runtime.Goexit()
}

// remedy says what to do about a disk that has refused what etcd wrote. It must not go on: after a failed fsync nobody
// knows what is on the disk. What it has acknowledged was there before.
func remedy(cause error) string {
	switch {
	case errors.Is(cause, syscall.EROFS):
		return "; the disk has become read-only, and nothing that was acknowledged is lost: see in the kernel's log why, " +
			"mount it for writing, and start the server again"
	case errors.Is(cause, syscall.EIO):
		return "; the disk fails, and what was acknowledged was on it before: see in the kernel's log why, mend or " +
			"replace it, and start the server again"
	}
	return ""
}

// errorOf returns the error of an entry; nil if it has none.
func errorOf(fields []zapcore.Field) (err error) {
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = cause
		}
	}
	return err
}
