package store

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"monoplane.dev/apiserver/store/watchcache"
)

// conflict finds the comparison that failed in what was found; nil when all hold by now. Operations come before
// guards: an operation on a newer object is to be decided again, and then meets the guard anyway.
func (a *attempt) conflict(found map[string]*mvccpb.KeyValue) error {
	for i := range a.steps {
		st := &a.steps[i]
		kv := found[st.key]
		if kv.GetModRevision() != st.op.Expect {
			return a.store.conflictAt(st.op.Key, st.kind, kv, false)
		}
	}
	for i := range a.txn.Guards {
		g := &a.txn.Guards[i]
		key, err := a.store.guardKey(g)
		if err != nil {
			return err
		}
		kv := found[key]
		switch {
		case g.holds(kv.GetModRevision()):
		case g.Condition == InTurn, g.Condition == InOffice:
			return &ConflictError{Key: g.Key, Guard: true}
		default:
			return a.store.conflictAt(g.Key, a.store.byKind[g.Key.Kind], kv, true)
		}
	}
	return nil
}

// holds reports whether the guard is met by a key at revision, which is 0 when the key is absent.
func (g *Guard) holds(revision int64) bool {
	switch g.Condition {
	case Present:
		return revision > 0
	case Absent:
		return revision == 0
	default:
		return revision == g.Revision
	}
}

func (s *Store) conflictAt(key Key, k *kind, kv *mvccpb.KeyValue, guard bool) error {
	e := &ConflictError{Key: key, Guard: guard}
	if kv == nil {
		return e
	}
	item, err := k.share(objectKey(key.Namespace, key.Name), kv)
	if err != nil {
		return err
	}
	e.Live, e.revision = item.Object, item.Revision
	return e
}

// share returns the object of kv, from the cache if it has the same.
func (k *kind) share(key string, kv *mvccpb.KeyValue) (*watchcache.Item, error) {
	if item := k.cache.Get(key); item != nil && item.Revision == kv.ModRevision {
		return item, nil
	}
	return k.decode(key, kv.Value, kv.ModRevision)
}
