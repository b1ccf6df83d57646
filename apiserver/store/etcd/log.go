package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap returns a logger for etcd that writes to lg, and stops the calling goroutine, rather than the
// process, when etcd wants to end it. etcd tells everything it does at its level Info, and warns of things that do not
// concern us, so both are our Debug.
func newZap(lg *slog.Logger, f *failure) *zap.Logger {
	hook := fatalHook{f}
	return zap.New(slogCore{lg: lg.With("component", "etcd")}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// expected is an entry at level Error that every new data directory makes once: the version of its schema can
// be told only after the first snapshot, and etcd tries again by itself.
const expected = "failed to update storage version"

// slogCore hands etcd's log entries to slog.
type slogCore struct {
	lg     *slog.Logger
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

// Enabled keeps fatal and panic entries, because their hooks must run whatever the level.
func (c slogCore) Enabled(l zapcore.Level) bool {
	return l > zapcore.ErrorLevel || c.lg.Enabled(context.Background(), slogLevel(l))
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
	level := slogLevel(e.Level)
	if e.Message == expected {
		level = slog.LevelDebug
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
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("etcd: %s: %w", e.Message, cause)
		}
	}
	h.f.set(err)
	runtime.Goexit()
}
