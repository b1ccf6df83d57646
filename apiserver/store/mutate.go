package store

import (
	"context"
	"errors"
	"time"

	"monoplane.dev/object"
)

// otherRaces is how often Mutate tries again when it was not its own object that has changed.
const otherRaces = 20

// Mutate changes one object, and others with it, by compare-and-swap (OBJ-2). It calls decide with the object,
// nil when it is absent, and commits the transaction that decide returns, after it has filled in what the
// operation on key expects. When another write was faster, it calls decide again with the newer object. decide
// must not change the object it is given. It returns (nil, nil) when there is nothing to do, and an error to
// give up; both are accepted only on the newest state.
//
// Mutate returns the object as it is after the write, nil when it was deleted or does not exist. It returns a
// *ConflictError when a guard on presence or absence failed; a turn, a guard on a revision, or an operation on another
// object, that has lost a race is decided again, some twenty times.
func (s *Store) Mutate(
	ctx context.Context, key Key, decide func(live object.Object) (*Txn, error),
) (object.Object, error) {
	k, err := s.kindOf(key)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	o, err := s.mutate(ctx, key, k, decide)
	s.metrics.committed(time.Since(start), err)
	return o, err
}

func (s *Store) mutate(
	ctx context.Context, key Key, k *kind, decide func(live object.Object) (*Txn, error),
) (object.Object, error) {
	name := objectKey(key.Namespace, key.Name)
	var live object.Object
	var revision int64
	refresh := func() {
		live, revision = nil, 0
		if item := k.cache.Get(name); item != nil {
			live, revision = item.Object, item.Revision
		}
	}
	if err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	refresh()
	newest := false
	for lost := 0; ; {
		txn, err := decide(live)
		if err != nil || txn == nil {
			// The cache may have been behind a write that the caller knows of.
			if !newest {
				if _, rerr := s.fresh(ctx, ""); rerr != nil {
					return nil, rerr
				}
				newest = true
				was := revision
				if refresh(); revision != was {
					continue
				}
			}
			if err != nil {
				return nil, err
			}
			return live, nil
		}
		own := expect(txn, key, revision)
		a, err := s.attempt(ctx, *txn)
		var conflict *ConflictError
		switch {
		case err == nil:
			return result(live, a, own), nil
		case !errors.As(err, &conflict):
			return nil, err
		case conflict.Key == key && !conflict.Guard:
			live, revision, newest = conflict.Live, conflict.revision, true
		case conflict.Guard && !races(txn, conflict.Key), lost == otherRaces:
			return nil, err
		default:
			// decide goes by what it reads of the other object, so that must be new.
			lost++
			if err := s.reach(ctx, a.seen); err != nil {
				return nil, err
			}
			refresh()
			newest = true
		}
		s.metrics.raced()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// expect fills in the revision of the operation on key and returns its index, -1 if there is none.
func expect(txn *Txn, key Key, revision int64) int {
	for i := range txn.Ops {
		if txn.Ops[i].Key == key {
			txn.Ops[i].Expect = revision
			return i
		}
	}
	return -1
}

// result is the object after the write.
func result(live object.Object, a *attempt, own int) object.Object {
	switch {
	case own < 0:
		return live
	case a.steps[own].same != nil:
		return a.steps[own].same.Object
	default:
		return a.txn.Ops[own].Object
	}
}

// races says whether the guard on key fails only because another write was faster, and not for good.
func races(txn *Txn, key Key) bool {
	for _, g := range txn.Guards {
		if g.Key == key && (g.Condition == AtRevision || g.Condition == InTurn || g.Condition == InOffice) {
			return true
		}
	}
	return false
}
