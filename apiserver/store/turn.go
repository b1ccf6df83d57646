package store

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Turn returns the guard with which writes that could together break a rule over several objects happen one after
// another, on any number of servers: one default at most, a name that belongs to one machine. Such a write calls Turn
// first, then reads what it is judged by, and has the guard in its transaction. The transaction fails when another
// write had its turn since, and is to be judged again; otherwise it judged what the last one left. Whatever it reads
// of the newest state after Turn is not older than the last turn.
//
// Writes that cannot break the rule need no turn, such as most deletions. A turn that was never taken looks as if
// nobody had one before, so that a store of an older version needs nothing done to it.
func (s *Store) Turn(ctx context.Context, name string) (Guard, error) {
	resp, err := s.client.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(turnPrefix + name), KeysOnly: true})
	if err != nil {
		return Guard{}, s.readError(err)
	}
	g := Guard{Key: Key{Name: name}, Condition: InTurn}
	if len(resp.Kvs) > 0 {
		g.Revision = resp.Kvs[0].ModRevision
	}
	// etcd may know of the turn before anybody was told of it.
	return g, s.reach(ctx, g.Revision)
}

// TakeTurn takes a turn, to keep it until somebody else takes it, and returns the guard, InOffice, for all that is
// written meanwhile. There may be any number of writes at a time: whoever holds the turn must see to it that they do
// not break the rule together. What is read of the newest state after TakeTurn has all that earlier holders wrote, and
// they write nothing more.
func (s *Store) TakeTurn(ctx context.Context, name string) (Guard, error) {
	for {
		g, err := s.Turn(ctx, name)
		if err != nil {
			return Guard{}, err
		}
		var conflict *ConflictError
		revision, err := s.Commit(ctx, Txn{Guards: []Guard{g}})
		switch {
		case err == nil:
			g.Condition, g.Revision = InOffice, revision
			return g, s.reach(ctx, revision)
		case !errors.As(err, &conflict):
			return Guard{}, err
		}
		if err := ctx.Err(); err != nil {
			return Guard{}, err
		}
	}
}
