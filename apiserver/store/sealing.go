package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/object"
)

// ErrSharedKeys says that one server alone cannot change the keys.
var ErrSharedKeys = errors.New("servers that share an etcd share the keys")

// takeKeys gets the keys of sealed kinds, and makes sure that they are those of this database, before anything is
// encrypted with others: servers that share one must have the same.
func (s *Store) takeKeys(ctx context.Context) error {
	if s.cfg.Keys == nil {
		return nil
	}
	was, err := s.sealedWith(ctx)
	if err != nil {
		return err
	}
	if s.keys, err = s.cfg.Keys(was != ""); err != nil {
		return err
	}
	for _, k := range s.kinds {
		if k.res.Sealed {
			k.keys = s.keys
		}
	}
	return s.useKey(ctx, was)
}

// sealedWith returns the id of the key with which the database is encrypted, empty when nothing has been yet.
func (s *Store) sealedWith(ctx context.Context) (string, error) {
	resp, err := s.client.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(sealKey)})
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	return string(resp.Kvs[0].Value), nil
}

// useKey notes in the database which key encrypts from now on, where was has been noted so far.
func (s *Store) useKey(ctx context.Context, was string) error {
	for {
		if was != "" && !s.knows(was) {
			return fmt.Errorf("%w: this database is encrypted with %s", seal.ErrUnknown, was)
		}
		current := s.keys.Current().String()
		if was == current {
			return nil
		}
		unchanged := &etcdserverpb.Compare{
			Key: []byte(sealKey), Result: etcdserverpb.Compare_EQUAL, Target: etcdserverpb.Compare_VALUE,
			TargetUnion: &etcdserverpb.Compare_Value{Value: []byte(was)},
		}
		if was == "" {
			unchanged = compareRevision([]byte(sealKey), etcdserverpb.Compare_EQUAL, 0)
		}
		resp, err := s.run(ctx, &etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{unchanged},
			Success: []*etcdserverpb.RequestOp{putOp([]byte(sealKey), []byte(current), 0)},
		})
		if err != nil || resp.Succeeded {
			return err
		}
		if was, err = s.sealedWith(ctx); err != nil { // another server was faster
			return err
		}
	}
}

func (s *Store) knows(id string) bool {
	for _, known := range s.keys.IDs() {
		if known.String() == id {
			return true
		}
	}
	return false
}

// RotateKeys makes a new key and writes all objects of sealed kinds again with it. It returns the id of the key and
// how many objects there were. Older keys stay in the file, for older snapshots. When it is interrupted, the next
// start goes on. Servers that share an etcd cannot do it: a key that one has made is unknown to the others.
func (s *Store) RotateKeys(ctx context.Context) (seal.ID, int, error) {
	switch {
	case s.keys == nil:
		return seal.ID{}, 0, errors.New("nothing is encrypted")
	case s.client.Shared():
		return seal.ID{}, 0, fmt.Errorf("%w: add a new one as the last line of each %s and restart the servers, then "+
			"make it the first line and restart them again", ErrSharedKeys, seal.FileName)
	}
	s.rotating.Lock()
	defer s.rotating.Unlock()
	was, err := s.sealedWith(ctx)
	if err != nil {
		return seal.ID{}, 0, err
	}
	id, err := s.keys.Rotate()
	if err == nil {
		err = s.useKey(ctx, was)
	}
	if err != nil {
		return seal.ID{}, 0, err
	}
	n, err := s.sealAgain(ctx)
	if err == nil {
		s.compact(ctx, s.progress.Revision())
	}
	return id, n, err
}

// CurrentKey returns the id of the key that encrypts, empty without one.
func (s *Store) CurrentKey() string {
	if s.keys == nil {
		return ""
	}
	return s.keys.Current().String()
}

// sealStale writes again what is not encrypted with the current key: what older versions left in plain text, and what
// an interrupted rotation left behind.
func (s *Store) sealStale(ctx context.Context) {
	s.rotating.Lock()
	defer s.rotating.Unlock()
	n, err := s.sealAgain(ctx)
	if err != nil && ctx.Err() == nil {
		s.lg.LogAttrs(ctx, slog.LevelWarn, "not everything could be encrypted with the current key", slog.Any("error", err))
	}
	if n > 0 {
		s.lg.LogAttrs(ctx, slog.LevelInfo, "encrypted with the current key", slog.Int("objects", n),
			slog.String("key", s.keys.Current().String()))
	}
}

// sealAgain writes all stale values again and returns how many there were.
func (s *Store) sealAgain(ctx context.Context) (int, error) {
	n := 0
	for _, k := range s.kinds {
		if k.keys == nil {
			continue
		}
		_, err := s.readAll(ctx, k.prefix, 0, func(kvs []*mvccpb.KeyValue) error {
			for _, kv := range kvs {
				if !k.stale(kv.Value) {
					continue
				}
				err := s.writeAgain(ctx, k, kv)
				var conflict *ConflictError
				switch {
				case errors.As(err, &conflict): // somebody else has written it, with the current key
				case err != nil:
					return err
				default:
					n++
				}
			}
			return nil
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *Store) writeAgain(ctx context.Context, k *kind, kv *mvccpb.KeyValue) error {
	item, err := k.decode(string(kv.Key[len(k.prefix):]), kv.Value, kv.ModRevision)
	if err != nil {
		return err
	}
	m := item.Object.GetMetadata()
	_, err = s.Commit(ctx, Txn{Ops: []Op{{
		Key:    Key{Kind: k.res.Kind, Namespace: m.GetNamespace(), Name: m.GetName()},
		Object: object.Clone(item.Object), Expect: kv.ModRevision, Again: true,
	}}})
	return err
}
