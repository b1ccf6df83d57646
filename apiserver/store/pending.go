package store

import (
	"context"

	"monoplane.dev/object"
)

// pendingWrite is an object on its way to etcd and, through the watch, back. The writer and the feed are both told of
// its revision, in any order, and the first of them writes it down; from then on nothing changes the object.
type pendingWrite struct {
	object object.Object
	// revision is 0 until it is known.
	revision int64
}

// settle is called when the transaction has been acknowledged. The caller holds pendingMu.
func (s *Store) settle(writer uint64, revision int64) {
	p := s.pending[writer]
	if p == nil {
		return // the feed was faster
	}
	p.revision = revision
	setRevision(p.object, revision)
	if s.progress.Revision() >= revision {
		delete(s.pending, writer) // the feed has begun anew since, beyond this revision
	}
}

// take returns the object that writer wrote at revision; nil when it was not written here.
func (s *Store) take(writer uint64, revision int64) object.Object {
	s.pendingMu.Lock()
	defer s.pendingMu.Unlock()
	p := s.pending[writer]
	if p == nil {
		return nil
	}
	delete(s.pending, writer)
	if p.revision == 0 {
		setRevision(p.object, revision)
	}
	return p.object
}

// forget drops the writes up to revision, which the feed will not deliver because it begins after them.
func (s *Store) forget(revision int64) {
	s.pendingMu.Lock()
	defer s.pendingMu.Unlock()
	for writer, p := range s.pending {
		if p.revision != 0 && p.revision <= revision {
			delete(s.pending, writer)
		}
	}
}

// catchUp waits until the caches have what was written here before, so that what is decided by them is decided on the
// newest state.
func (s *Store) catchUp(ctx context.Context) error { return s.reach(ctx, s.written.Load()) }

// keepUp waits until the caches are not far behind, and have the objects that ops replace.
func (s *Store) keepUp(ctx context.Context, ops []Op) error {
	written := s.written.Load()
	needed := written - maxLag
	for i := range ops {
		needed = max(needed, min(ops[i].Expect, written))
	}
	return s.reach(ctx, needed)
}
