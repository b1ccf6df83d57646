package store

import (
	"context"

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
