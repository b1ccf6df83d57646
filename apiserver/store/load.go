package store

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/sync/errgroup"

	"monoplane.dev/apiserver/store/watchcache"
)

// dataVersion is the format in which this binary writes. It grows when an older binary could no longer read
// the data, or would damage it.
const dataVersion = 2

// checkVersion refuses data of a newer version, and marks new data and those of an older version with ours. It writes
// nothing else: what is full can be read.
func (s *Store) checkVersion(ctx context.Context) error {
	resp, err := s.client.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(versionKey)})
	if err != nil {
		return err
	}
	var at int64
	if len(resp.Kvs) > 0 {
		at = resp.Kvs[0].ModRevision
		version, err := strconv.Atoi(string(resp.Kvs[0].Value))
		switch {
		case err != nil || version < 1:
			return fmt.Errorf("%s holds %q, which is no version", versionKey, resp.Kvs[0].Value)
		case version > dataVersion:
			return fmt.Errorf("the data was written by a newer version of monoplane (format %d, this binary knows %d)",
				version, dataVersion)
		case version == dataVersion:
			return nil
		}
	}
	// What was written is read as it is; what is written from now on, an older binary cannot read.
	marked, err := s.run(ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{compareRevision([]byte(versionKey), etcdserverpb.Compare_EQUAL, at)},
		Success: []*etcdserverpb.RequestOp{putOp([]byte(versionKey), []byte(strconv.Itoa(dataVersion)), 0)},
	})
	if err != nil || marked.Succeeded {
		return err
	}
	return s.checkVersion(ctx) // another server was faster
}

const loadPage = 500

// load reads all objects at one revision into the caches. why ends watches that are open.
func (s *Store) load(ctx context.Context, why error) error {
	pages := make(chan []*mvccpb.KeyValue, 2)
	var revision int64
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(pages)
		var err error
		revision, err = s.readAll(gctx, root, 0, func(kvs []*mvccpb.KeyValue) error {
			select {
			case pages <- kvs:
				return nil
			case <-gctx.Done():
				return gctx.Err()
			}
		})
		return err
	})
	// Pages are decoded in parallel and put together in their order.
	type decoded struct {
		page  int
		items map[*kind][]*watchcache.Item
	}
	results := map[int]map[*kind][]*watchcache.Item{}
	out := make(chan decoded)
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for d := range out {
			results[d.page] = d.items
		}
	}()
	workers, wctx := errgroup.WithContext(gctx)
	workers.SetLimit(runtime.GOMAXPROCS(0))
	n := 0
	for kvs := range pages {
		page := n
		n++
		workers.Go(func() error {
			if wctx.Err() != nil {
				return wctx.Err()
			}
			items, err := s.decodePage(kvs)
			if err == nil {
				out <- decoded{page, items}
			}
			return err
		})
	}
	werr := workers.Wait()
	close(out)
	<-collected
	// When reading failed, the workers only know that they were canceled.
	if err := cmp.Or(g.Wait(), werr); err != nil {
		return err
	}
	s.arriving.Store(revision)
	for _, k := range s.kinds {
		var items []*watchcache.Item
		for page := range n {
			items = append(items, results[page][k]...)
		}
		k.cache.Replace(items, revision, why)
	}
	s.progress.Set(revision)
	s.forget(revision)
	return nil
}

func (s *Store) decodePage(kvs []*mvccpb.KeyValue) (map[*kind][]*watchcache.Item, error) {
	items := map[*kind][]*watchcache.Item{}
	for _, kv := range kvs {
		k, key := s.lookup(string(kv.Key))
		if k == nil {
			continue
		}
		item, err := k.decode(key, kv.Value, kv.ModRevision)
		if err != nil {
			return nil, err
		}
		items[k] = append(items[k], item)
	}
	return items, nil
}

// lookup returns the kind of an object's key and the rest of the key; nil for keys of kinds that we do not serve.
func (s *Store) lookup(key string) (*kind, string) {
	prefix, rest, ok := splitKey(key)
	if !ok {
		return nil, ""
	}
	return s.kinds[prefix], rest
}

// readAll reads all keys with prefix at revision (0 for the newest) in pages.
func (s *Store) readAll(
	ctx context.Context, prefix string, revision int64, page func([]*mvccpb.KeyValue) error,
) (int64, error) {
	from := prefix
	for {
		resp, err := s.client.Range(ctx, &etcdserverpb.RangeRequest{
			Key: []byte(from), RangeEnd: []byte(prefixEnd(prefix)), Revision: revision, Limit: loadPage,
		})
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = resp.Header.Revision
		}
		if len(resp.Kvs) > 0 {
			if err := page(resp.Kvs); err != nil {
				return 0, err
			}
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
		if !resp.More {
			return revision, nil
		}
	}
}

// prefixEnd returns the end of the range of keys with prefix, which ends in "/".
func prefixEnd(prefix string) string { return prefix[:len(prefix)-1] + "0" }
