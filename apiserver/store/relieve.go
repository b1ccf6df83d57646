package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"monoplane.dev/apiserver/store/etcd"
)

// Rounds that make no room are firstPause apart, then twice as long each time, lastPause at most: etcd stands still
// while it is defragmented. All rounds on an etcd that others use are, with sharedPause at most. After a deletion
// there may be room in an etcd of our own, and the next round is then deletionPause after the last one, or as long as
// that one took.
const (
	firstPause    = time.Minute
	lastPause     = 10 * time.Minute
	sharedPause   = time.Hour
	deletionPause = time.Second
)

// relief makes room in a full database, once for all who need it at the time.
type relief struct {
	// mu is never held while etcd is asked.
	mu  sync.Mutex
	now *reliefRound
	// ended is when the last round ended, err why it made no room, and pause the time after it in which there is none.
	ended time.Time
	took  time.Duration
	err   error
	pause time.Duration
}

// reliefRound is one time that room is made. err is there when done is closed.
type reliefRound struct {
	done chan struct{}
	err  error
}

// errAgain is said of a database that is full although room was just made.
var errAgain = errors.New("room was made a short time ago, and others have used it up")

// relieve makes room in a full database, or waits until somebody else has. It goes on when the caller gives up. In the
// pause after the last round it says at once why there is no room.
func (s *Store) relieve(ctx context.Context) error {
	r, err := s.reliefRound()
	if err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) reliefRound() (*reliefRound, error) {
	l := &s.relief
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		return l.now, nil
	}
	wait := time.Until(l.ended.Add(l.pause))
	switch {
	case wait > l.shortPause() && l.err != nil:
		return nil, l.err
	case wait > l.shortPause():
		return nil, errAgain
	case -wait > l.pause:
		l.pause = 0 // there was room for some time
	}
	r := &reliefRound{done: make(chan struct{})}
	started := s.background(func(ctx context.Context) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		began := time.Now()
		r.err = s.makeRoom(ctx)
		l.end(r.err, time.Since(began), s.client.Shared())
		close(r.done)
	})
	if !started {
		return nil, etcd.ErrClosed
	}
	l.now = r
	return r, nil
}

// end notes the end of a round and sets the pause after it.
func (l *relief) end(err error, took time.Duration, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now, l.ended, l.took, l.err = nil, time.Now(), took, err
	switch longer := max(2*l.pause, firstPause); {
	case shared:
		l.pause = min(longer, sharedPause)
	case err == nil:
		l.pause = 0
	default:
		l.pause = min(longer, lastPause)
	}
}

// shortPause is one for which writers wait.
func (l *relief) shortPause() time.Duration { return max(deletionPause, l.took) }

// deleted is told that there may be more to free than in the last round.
func (l *relief) deleted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pause = min(l.pause, l.shortPause())
}

func (s *Store) makeRoom(ctx context.Context) error {
	revision, err := s.head(ctx)
	if err != nil {
		return err
	}
	err = s.client.Relieve(ctx, revision)
	switch {
	case errors.Is(err, etcd.ErrNotMaintained):
		return err
	case err == nil || errors.Is(err, etcd.ErrNothingFreed):
		s.compacted.Store(max(s.compacted.Load(), revision))
	}
	s.lg.LogAttrs(ctx, slog.LevelWarn, "the database was full and has been compacted",
		slog.Int64("revision", revision), slog.Any("error", err))
	if err != nil {
		return fmt.Errorf("no room could be made: %w", err)
	}
	return nil
}
