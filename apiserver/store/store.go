package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/apiserver/store/watchcache"
	"monoplane.dev/internal/intern"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Watcher delivers the changes of one kind. See watchcache.Watcher.
type Watcher = watchcache.Watcher

// ErrStopped is what a watcher's Next returns after Stop.
var ErrStopped = watchcache.ErrStopped

// maxTxns is how many transactions are on their way to etcd at a time, others wait; maxLag is how many revisions the
// caches may be behind what has been acknowledged. It fills etcd's batches, and together they are less than what etcd
// keeps for a watcher before it makes that one read everything again, every 100 ms: however many writers there are,
// the feed stays close behind.
const (
	maxTxns = 80
	maxLag  = 32
)

// Store is an open store. All methods are safe for concurrent use.
type Store struct {
	cfg      Config
	lg       *slog.Logger
	client   etcd.Client
	table    *crc32.Table
	pool     *intern.Pool
	kinds    map[string]*kind // by key prefix
	byKind   map[*object.Kind]*kind
	progress *watchcache.Progress
	// arriving is the newest revision of which a cache may already have its part.
	arriving atomic.Int64
	metrics  *metrics
	leases   leases

	// slots are held by the transactions that are on their way.
	slots chan struct{}
	// writer numbers the attempts to write; pending are the objects on their way to etcd and back.
	writer    atomic.Uint64
	pendingMu sync.Mutex
	pending   map[uint64]*pendingWrite
	// written is the newest revision that was written here.
	written atomic.Int64

	// watch is what feeds the caches at present.
	watch atomic.Pointer[etcd.Watch]

	// bytes are those that the feed has seen written.
	bytes written
	// keys encrypt the values of sealed kinds; nil without. rotating is held by who writes them again.
	keys     *seal.Keys
	rotating sync.Mutex
	// compacted is the newest revision that has been compacted.
	compacted atomic.Int64
	// aged is the revision that was the newest CompactionInterval ago.
	aged   atomic.Int64
	relief relief
	// reads and writes know whether etcd answers.
	reads, writes probe

	// running is what goes on in the background.
	running running
	// behind says why the caches are not being fed; nil when they are.
	behind    atomic.Pointer[error]
	closeOnce sync.Once
	closeErr  error
}

// kind is one kind of the store.
type kind struct {
	res    Collection
	prefix string
	cache  *watchcache.Cache
	table  *crc32.Table
	pool   *intern.Pool
	keys   *seal.Keys // nil for kinds that are not encrypted
	// received is how many of its events etcd has sent, and requests counts what etcd was asked for because of it.
	received atomic.Int64
	requests [len(operations)]etcdRequests
}

func (k *kind) intern(o, live object.Object) {
	m := o.GetMetadata()
	if m == nil {
		return
	}
	var used []*metav1.ManagedFieldsEntry
	if live != nil {
		used = live.GetMetadata().GetManagedFields()
	}
	shareOwners(k.pool, m.ManagedFields, used)
	if k.res.Share != nil {
		k.res.Share(k.pool, o, live)
	}
}

// shareOwners shares what is alike in who owns fields: objects of one template have the same fields, and their entries
// differ in the time. Those that live has been written with have been through here.
func shareOwners(pool *intern.Pool, list, used []*metav1.ManagedFieldsEntry) {
	if len(list) > 0 && len(used) > 0 && &list[0] == &used[0] {
		return
	}
	for i, e := range list {
		if !slices.Contains(used, e) {
			list[i] = intern.Compound(pool, e, shareFields)
		}
	}
}

func shareFields(pool *intern.Pool, e *metav1.ManagedFieldsEntry) {
	e.FieldsV1, e.Time = intern.Message(pool, e.FieldsV1), intern.Message(pool, e.Time)
	intern.Texts(pool, &e.Manager, &e.Operation, &e.ApiVersion, &e.FieldsType, &e.Subresource)
}

// Parts returns what objects share; see Collection.Share.
func (s *Store) Parts() *intern.Pool { return s.pool }

// Share lets o, which is about to be written and which nobody else has seen, share equal parts with what is stored.
// Live is the stored object that o was made from, nil for a new one.
func (s *Store) Share(o, live object.Object) {
	if k := s.byKind[o.ObjectKind()]; k != nil {
		k.intern(o, live)
	}
}

// Open opens the data directory, or connects to the external etcd, and loads all objects. The error is one line
// that says what is wrong: in use, damaged, full, written by a newer version.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	s := &Store{
		cfg: cfg, lg: cfg.Logger, table: crc32.MakeTable(crc32.Castagnoli), pool: &intern.Pool{}, kinds: map[string]*kind{},
		byKind: map[*object.Kind]*kind{}, progress: watchcache.NewProgress(), pending: map[uint64]*pendingWrite{},
		slots: make(chan struct{}, maxTxns),
	}
	s.running.ctx, s.running.cancel = context.WithCancel(context.Background())
	if err := s.addKinds(); err != nil {
		return nil, err
	}
	s.writer.Store(randomWriter())
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	err := s.checkVersion(ctx)
	if err == nil {
		err = s.takeKeys(ctx)
	}
	if err == nil {
		err = s.load(ctx, nil)
	}
	if err == nil {
		s.metrics, err = newMetrics(s)
	}
	if err != nil {
		s.running.stop()
		return nil, errors.Join(fmt.Errorf("store: %w", err), s.client.Close())
	}
	s.background(s.feed)
	s.background(s.housekeep)
	if s.keys != nil {
		s.background(s.sealStale)
	}
	return s, nil
}

func (s *Store) addKinds() error {
	for _, res := range s.cfg.Collections {
		k := &kind{res: res, prefix: kindPrefix(res.Kind), table: s.table, pool: s.pool}
		if s.kinds[k.prefix] != nil {
			return fmt.Errorf("store: kind %s is given twice", res.Kind.Resource())
		}
		for _, field := range res.Indexes {
			if _, ok := k.field(res.Kind.New(), field); !ok {
				return fmt.Errorf("store: index %s of %s is not a selectable field", field, res.Kind.Resource())
			}
		}
		k.cache = watchcache.New(watchcache.Config{
			Kind: res.Kind, Field: res.Field, Indexes: res.Indexes,
			HistoryEvents: s.cfg.HistoryEvents, HistoryBytes: s.cfg.HistoryBytes, WatchBuffer: s.cfg.WatchBuffer,
			BookmarkInterval: s.cfg.BookmarkInterval, Progress: s.progress, Mutated: s.cfg.OnMutation,
		})
		s.kinds[k.prefix], s.byKind[res.Kind] = k, k
	}
	return nil
}

func (k *kind) field(o object.Object, name string) (string, bool) {
	if k.res.Field == nil {
		return "", false
	}
	return k.res.Field(o, name)
}

// randomWriter starts the numbers of this store's writes where no other store's are likely to be.
func randomWriter() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

func (s *Store) connect(ctx context.Context) (err error) {
	if s.cfg.Connect == nil {
		return errors.New("store: no etcd is given")
	}
	if s.client, err = s.cfg.Connect(ctx, VerifyValue); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if s.cfg.wrap != nil {
		s.client = s.cfg.wrap(s.client)
	}
	return nil
}

// Close stops the store. Calls in progress fail. Further calls of Close do nothing.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.running.stop()
		err := apierrors.New(apierrors.ServiceUnavailable, "the store is closed")
		s.progress.Stop(err)
		for _, k := range s.kinds {
			k.cache.CheckMutations()
			k.cache.Close(err)
		}
		s.metrics.close()
		s.closeErr = errors.Join(s.closeErr, s.client.Close())
	})
	return s.closeErr
}

// Failed is closed when the embedded etcd has given up for good, for example because the disk is full. Err says
// why. Nothing acknowledged is lost; the process should end.
func (s *Store) Failed() <-chan struct{} { return s.client.Failed() }

// Err says why the store has failed; nil while it works.
func (s *Store) Err() error { return s.client.Err() }

const (
	defaultStartTimeout = 30 * time.Second
	defaultPatience     = 3 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
	if c.StartTimeout <= 0 {
		c.StartTimeout = defaultStartTimeout
	}
	if c.CompactionInterval <= 0 {
		c.CompactionInterval = 5 * time.Minute
	}
	if c.HistoryRevisions <= 0 {
		c.HistoryRevisions = 5_000
	}
	return c
}

// Kinds returns what is stored, in no order.
func (s *Store) Kinds() []*object.Kind { return slices.Collect(maps.Keys(s.byKind)) }
