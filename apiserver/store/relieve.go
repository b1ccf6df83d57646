package store

import (
	"context"
	"log/slog"
	"sync"

	"monoplane.dev/apiserver/store/etcd"
)

// relief makes room in a full database, once for all who need it at the time.
type relief struct {
	// mu is never held while etcd is asked.
	mu  sync.Mutex
	now *reliefRound
}

// reliefRound is one time that room is made. err is there when done is closed.
type reliefRound struct {
	done chan struct{}
	err  error
}

// relieve makes room in a full database, or waits until somebody else has. It goes on when the caller gives up.
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
	s.relief.mu.Lock()
	defer s.relief.mu.Unlock()
	if s.relief.now != nil {
		return s.relief.now, nil
	}
	r := &reliefRound{done: make(chan struct{})}
	started := s.background(func(ctx context.Context) {
		r.err = s.makeRoom(ctx)
		s.relief.mu.Lock()
		s.relief.now = nil
		s.relief.mu.Unlock()
		close(r.done)
	})
	if !started {
		return nil, etcd.ErrClosed
	}
	s.relief.now = r
	return r, nil
}

func (s *Store) makeRoom(ctx context.Context) error {
	revision, err := s.head(ctx)
	if err != nil {
		return err
	}
	s.lg.LogAttrs(ctx, slog.LevelWarn, "the database is full; compacting and defragmenting it",
		slog.Int64("revision", revision))
	if err := s.client.Relieve(ctx, revision); err != nil {
		return err
	}
	s.compacted.Store(max(s.compacted.Load(), revision))
	return nil
}
