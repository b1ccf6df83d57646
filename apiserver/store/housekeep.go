package store

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"monoplane.dev/apiserver/store/etcd"
)

// mark is a revision, when it was the newest, and how many bytes had been written then.
type mark struct {
	revision int64
	at       time.Time
	bytes    int64
}

// housekeep keeps kinds within their bounds, compacts etcd's history and drops what the caches no longer need, until
// ctx ends.
func (s *Store) housekeep(ctx context.Context) {
	const marksInInterval = 10
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	marks := []mark{s.mark()}
	large := marks[:1:1]
	var released, last int64 // revisions up to which the history was cut
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// To cut its history, etcd reads the whole database, in the seconds after it was told to.
		if cut := s.compacted.Load(); cut != last {
			last = cut
		} else if cut != released {
			released = cut
			s.releasePages(ctx)
		}
		s.evict(ctx)
		now := s.mark()
		large = s.compactLarge(ctx, large, now)
		s.forgetLog(ctx)
		// A history that grows fast is cut in between; not each time by a little, because a compaction has a price.
		if excess := now.revision - s.cfg.HistoryRevisions; excess > s.compacted.Load()+s.cfg.HistoryRevisions/2 {
			s.compact(ctx, excess)
		}
		if now.at.Sub(marks[len(marks)-1].at) < s.cfg.CompactionInterval/marksInInterval {
			continue
		}
		marks = append(marks, now)
		for len(marks) > 1 && now.at.Sub(marks[1].at) >= s.cfg.CompactionInterval {
			marks = marks[1:]
		}
		if now.at.Sub(marks[0].at) >= s.cfg.CompactionInterval {
			s.aged.Store(marks[0].revision)
			s.compact(ctx, marks[0].revision)
		}
		for _, k := range s.kinds {
			k.cache.Housekeep()
		}
	}
}

func (s *Store) mark() mark {
	total, _ := s.bytes.bytes()
	return mark{s.progress.Revision(), time.Now(), total}
}

// compactLarge cuts the history when much has been written since the first of marks, and returns the marks to go on
// with.
func (s *Store) compactLarge(ctx context.Context, marks []mark, now mark) []mark {
	if marks[len(marks)-1].bytes != now.bytes {
		marks = append(marks, now)
	}
	if now.bytes-marks[0].bytes <= databaseBytes {
		return marks
	}
	for len(marks) > 1 && now.bytes-marks[0].bytes > databaseBytes/2 {
		marks = marks[1:]
	}
	s.compact(ctx, marks[0].revision)
	return marks
}

// forgetLog makes etcd drop large writes from its memory.
func (s *Store) forgetLog(ctx context.Context) {
	if _, log := s.bytes.bytes(); log <= logBytes {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	if err := s.client.ForgetLog(ctx); err != nil {
		s.lg.LogAttrs(ctx, slog.LevelDebug, "etcd's log stays in memory", slog.Any("error", err))
		return
	}
	s.bytes.forgotten()
}

// compact discards etcd's history before revision, unless that has happened.
func (s *Store) compact(ctx context.Context, revision int64) {
	if revision <= s.compacted.Load() || revision <= 1 {
		return
	}
	start := time.Now()
	err := s.client.Compact(ctx, revision)
	if err != nil && !errors.Is(err, etcd.ErrCompacted) {
		if ctx.Err() == nil {
			s.lg.LogAttrs(ctx, slog.LevelWarn, "compaction failed", slog.Int64("revision", revision), slog.Any("error", err))
		}
		return
	}
	s.compacted.Store(revision)
	s.metrics.compacted()
	s.lg.LogAttrs(ctx, slog.LevelDebug, "compacted", slog.Int64("revision", revision),
		slog.Duration("took", time.Since(start)))
}

func (s *Store) releasePages(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	if err := s.ReleasePages(ctx); err != nil {
		s.lg.LogAttrs(ctx, slog.LevelDebug, "the database's pages stay in memory", slog.Any("error", err))
	}
}

// ReleasePages gives back the memory in which this process sees the embedded database's file. It is for times when
// little happens: what is needed again is found in the system's page cache.
func (s *Store) ReleasePages(ctx context.Context) error { return s.client.ReleasePages(ctx) }

// Snapshot writes a consistent copy of all data to w while the store goes on. Restore makes a data directory of it.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) error { return s.client.Snapshot(ctx, w) }
