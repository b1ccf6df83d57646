package audit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultBuffer is how many bytes of lines may wait for the disk.
const DefaultBuffer = 8 << 20

// complainEvery is the least time between two lines in the server's log about a log that takes nothing.
const complainEvery = time.Minute

// Config is what NewLog needs.
type Config struct {
	// Policy says what is recorded. Required.
	Policy *Policy
	// Writer takes the lines, several at a time, and is closed at the end. Required.
	Writer io.WriteCloser
	// Buffer bounds the bytes that wait; DefaultBuffer when 0. What must be recorded has as much again.
	Buffer int
	// Logger gets what is lost. Required.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Log takes the events. It is safe for concurrent use; Close ends it.
type Log struct {
	policy *Policy
	writer io.WriteCloser
	buffer int
	logger *slog.Logger
	now    func() time.Time

	events, lostTotal prometheus.Counter

	mu sync.Mutex
	// pending are the lines that wait, count how many they are.
	pending []byte
	count   int
	// lost is how many lines were lost since it was last said.
	lost   int
	closed bool
	// wake has a message when there is something to do.
	wake  chan struct{}
	ended chan error
	// complained is when the server's log was last told that the writer fails; only the writing goroutine uses it.
	complained time.Time
}

// NewLog starts a log.
func NewLog(cfg Config) (*Log, error) {
	l := &Log{
		policy: cfg.Policy, writer: cfg.Writer, buffer: cfg.Buffer, logger: cfg.Logger, now: cfg.Now,
		wake: make(chan struct{}, 1), ended: make(chan error, 1),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monoplane_audit_events_total", Help: "Events that were given to the audit log.",
		}),
		lostTotal: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monoplane_audit_lost_total", Help: "Events that the audit log has lost, without room or disk.",
		}),
	}
	if l.buffer == 0 {
		l.buffer = DefaultBuffer
	}
	if l.now == nil {
		l.now = time.Now
	}
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{l.events, l.lostTotal} {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("audit: register metrics: %w", err)
			}
		}
	}
	go l.run()
	return l, nil
}

// add puts a line into the buffer, or counts it as lost. Act is what must be recorded, if it is that.
func (l *Log) add(line []byte, id, act string) {
	l.events.Inc()
	limit := l.buffer
	if act != "" {
		limit *= 2
	}
	l.mu.Lock()
	full := l.closed || len(l.pending)+len(line) > limit
	if full {
		l.lost++
	} else {
		l.pending = append(l.pending, line...)
		l.count++
	}
	l.mu.Unlock()
	if full {
		l.lostTotal.Inc()
		if act != "" {
			l.logger.Error("an audit event that must be kept is lost", "auditID", id, "act", act)
		}
	}
	l.signal()
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run writes what waits, all of it at once, until the log is closed.
func (l *Log) run() {
	var batch []byte
	for range l.wake {
		var count, lost int
		var closed bool
		l.mu.Lock()
		batch, l.pending = l.pending, batch[:0]
		count, lost, closed = l.count, l.lost, l.closed
		l.count, l.lost = 0, 0
		l.mu.Unlock()
		if lost > 0 {
			batch = append(batch, l.lossLine(lost)...)
			l.logger.Error("audit events are lost: the audit log takes less than comes", "lost", lost)
		}
		if len(batch) > 0 {
			if _, err := l.writer.Write(batch); err != nil {
				l.failed(err, count, lost)
			}
		}
		if cap(batch) > 1<<20 {
			batch = nil // what a storm needed is given back
		}
		if closed {
			l.ended <- l.writer.Close()
			return
		}
	}
}

// failed counts a batch as lost. It is said in the log at the next chance.
func (l *Log) failed(err error, count, lost int) {
	l.lostTotal.Add(float64(count))
	l.mu.Lock()
	l.lost += count + lost
	l.mu.Unlock()
	if now := l.now(); l.complained.IsZero() || now.Sub(l.complained) >= complainEvery {
		l.complained = now
		l.logger.Error("the audit log cannot be written", "error", err, "lost", count)
	}
}

// lossLine is the event that says how many are missing.
func (l *Log) lossLine(lost int) []byte {
	e := newEvent(newID())
	now := timestamp(l.now())
	e.Level, e.Stage, e.Verb, e.RequestReceived, e.StageTime = LevelMetadata, StageResponseComplete, "lose", now, now
	e.User = userInfo{Username: "system:apiserver", Groups: []string{"system:masters"}}
	e.Annotations = map[string]string{annotationLost: strconv.Itoa(lost)}
	return e.line()
}

// ErrStuck says that the log did not take its last lines in time.
var ErrStuck = errors.New("the audit log does not take what is left")

// Close writes what waits and ends the log. It gives up when ctx ends, on a disk that hangs.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	left := l.count
	l.mu.Unlock()
	if again {
		return nil
	}
	l.signal()
	select {
	case err := <-l.ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %d lines", ErrStuck, left)
	}
}

// newID returns a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := make([]byte, 0, 36)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return string(text)
}
