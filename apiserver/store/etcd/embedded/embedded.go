// Package embedded runs an etcd server inside this process, without any listener.
//
// It guarantees what etcd guarantees (an acknowledged transaction survives a crash of the
// process and, unless fsync is switched off, of the machine) and adds checks that etcd leaves to its
// operator: one instance per data directory, the write-ahead log and the database verified before they are
// opened, fatal errors of etcd turned into an error instead of the end of the process, recovery from a full
// quota. It runs inside a testing/synctest bubble: no sockets, no package-level goroutines.
//
// It serves no network clients, is always a cluster of one member, and does not compact on its own.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/zap"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/internal/dirlock"
)

// Config says how the embedded server runs. Dir is required.
type Config struct {
	// Dir is the data directory, which belongs to this server alone.
	Dir string
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// UnsafeNoFsync trades the safety of acknowledged writes against crashes of the machine for speed.
	UnsafeNoFsync bool
	// QuotaBytes bounds the database; 0 for the default of 8 GiB.
	QuotaBytes int64
}

// Connect is Start for those who open a store.
func Connect(cfg Config) etcd.Connect {
	return func(ctx context.Context, verify func(key, value []byte) error) (etcd.Client, error) {
		return Start(ctx, cfg, verify)
	}
}

const (
	memberName = "monoplane"
	// peerURL is never listened on: etcd wants every member to have one, and derives the member's id from it.
	peerURL      = "http://localhost:2380"
	clusterToken = "monoplane"

	// tick is what etcd takes for raft's clock. electionTick is that clock until the election, which takes two or three
	// ticks for which a start waits, and quietTick afterwards; see clock.
	tick          = 10 * time.Millisecond
	electionTick  = 2 * time.Millisecond
	electionTicks = 2
	quietTick     = time.Second

	// snapshotCount entries are replayed at most when the server starts. catchUpEntries stay in memory, beside up to
	// logEntries newer ones: they are meant for slow followers, of which there are none, and 0 would be the default of 5
	// 000.
	snapshotCount   = 1000
	catchUpEntries  = 1
	logEntries      = 100
	walSegmentBytes = 4 << 20
	walFiles        = 2
	snapFiles       = 2

	defaultQuota = 8 << 30
	// defragAtStart is how many free megabytes in the database make the server compact the file when it starts.
	defragAtStart = 256
	// checkLimit bounds the time that verifying the database adds to the start.
	checkLimit = 2 * time.Second
	// stopLimit bounds Close, because a failed server may never stop.
	stopLimit = 10 * time.Second
)

// Embedded is an etcd server in this process.
type Embedded struct {
	srv  *etcdserver.EtcdServer
	lock *dirlock.Lock
	fail *failure
	lg   *slog.Logger
	// acknowledged is the newest revision that a caller of Txn has been told.
	acknowledged atomic.Int64
	batch        *batch
	disk         disk
	clock        clock
	// limit is etcd.CallLimit.
	limit time.Duration

	// using is held for reading by calls, because etcd panics when its storage is closed under them.
	using sync.RWMutex

	closeOnce sync.Once
	closed    chan struct{}
	closeErr  error
}

// setSegmentSize changes a variable of etcd's, which every server of the process shares, just once.
var setSegmentSize = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegmentBytes })

// Start locks and verifies the data directory, each stored value by verify unless that is nil, and runs a server on
// it. It returns when the server is ready or ctx ends. The error is one line that says what is wrong with the
// directory.
func Start(ctx context.Context, cfg Config, verify func(key, value []byte) error) (*Embedded, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if cfg.Dir == "" {
		return nil, errors.New("no data directory is given")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	lock, err := dirlock.Acquire(cfg.Dir)
	if err != nil {
		return nil, err
	}
	e := &Embedded{
		lock: lock, fail: newFailure(), lg: cfg.Logger, closed: make(chan struct{}), batch: newBatch(),
		limit: etcd.CallLimit,
	}
	sc, err := serverConfig(cfg, newZap(cfg.Logger, e.fail))
	if err == nil {
		err = checkRestored(cfg.Dir)
	}
	e.disk.dir, e.disk.database = cfg.Dir, sc.BackendPath()
	var replayed uint64
	if err == nil {
		replayed, err = checkDir(sc, verify)
	}
	if err == nil {
		setSegmentSize()
		err = e.start(ctx, sc, replayed)
	}
	if err != nil {
		_ = lock.Release() // the first error says more
		return nil, err
	}
	return e, nil
}

func serverConfig(cfg Config, lg *zap.Logger) (config.ServerConfig, error) {
	peers, err := types.NewURLs([]string{peerURL})
	if err != nil {
		return config.ServerConfig{}, err
	}
	gate := features.NewDefaultServerFeatureGate(memberName, lg)
	// Leases keep their remaining time across restarts.
	err = gate.(featuregate.MutableFeatureGate).SetFromMap(map[string]bool{
		string(features.LeaseCheckpoint): true, string(features.LeaseCheckpointPersist): true,
	})
	if err != nil {
		return config.ServerConfig{}, err
	}
	quota := cfg.QuotaBytes
	if quota == 0 {
		quota = defaultQuota
	}
	return config.ServerConfig{
		Name:                              memberName,
		DataDir:                           cfg.Dir,
		ClientURLs:                        types.URLs([]url.URL{}),
		PeerURLs:                          peers,
		InitialPeerURLsMap:                types.URLsMap{memberName: peers},
		InitialClusterToken:               clusterToken,
		NewCluster:                        true,
		TickMs:                            uint(tick / time.Millisecond),
		ElectionTicks:                     electionTicks,
		SnapshotCount:                     snapshotCount,
		SnapshotCatchUpEntries:            catchUpEntries,
		MaxSnapFiles:                      snapFiles,
		MaxWALFiles:                       walFiles,
		BackendBatchInterval:              batchInterval,
		BackendFreelistType:               bbolt.FreelistMapType,
		QuotaBackendBytes:                 quota,
		MaxTxnOps:                         128,
		MaxRequestBytes:                   etcd.MaxRequestBytes,
		CompactionBatchLimit:              1000,
		CompactionSleepInterval:           10 * time.Millisecond,
		BootstrapDefragThresholdMegabytes: defragAtStart,
		WarningApplyDuration:              time.Second,
		BcryptCost:                        10, // nobody logs in, but etcd wants one
		LeaseCheckpointInterval:           10 * time.Minute,
		UnsafeNoFsync:                     cfg.UnsafeNoFsync,
		ServerFeatureGate:                 gate,
		Logger:                            lg,
	}, nil
}

// removeUnused removes a database in which nothing has been written: the very first start was interrupted before the
// first entry was in the log. Any other one is refused, for the reason given.
func removeUnused(sc config.ServerConfig, verify func(key, value []byte) error, why string) error {
	st, err := checkDB(sc.BackendPath(), checkLimit, verify)
	if err != nil {
		return err
	}
	if st.keys || st.index > 0 {
		return fmt.Errorf("the data directory is damaged: %s", why)
	}
	return os.Remove(sc.BackendPath())
}

// checkDir refuses a data directory in which something is missing or destroyed. It returns the last entry that etcd
// replays for certain when it starts; 0 for none.
func checkDir(sc config.ServerConfig, verify func(key, value []byte) error) (replayed uint64, err error) {
	haveWAL := walExists(sc.WALDir())
	_, err = os.Stat(sc.BackendPath())
	haveDB := err == nil
	switch {
	case !haveWAL && !haveDB:
		return 0, nil
	case !haveWAL:
		return 0, removeUnused(sc, verify, "there is a database but no log in "+sc.WALDir())
	}
	ws, err := checkWAL(sc.WALDir())
	if err != nil {
		return 0, err
	}
	if ws.commit > ws.snapshot {
		replayed = min(ws.commit, ws.last)
	}
	if ws.last == 0 && ws.snapshot == 0 {
		// The first entry names the only member. Without it nobody is ever elected, so that all is made again.
		if haveDB {
			err = removeUnused(sc, verify, "there is a database but the log in "+sc.WALDir()+" is empty")
		}
		if err != nil {
			return 0, err
		}
		return 0, os.RemoveAll(sc.WALDir())
	}
	if !haveDB {
		if ws.snapshot > 0 {
			return 0, fmt.Errorf("the data directory is damaged: the database %s is missing", sc.BackendPath())
		}
		return replayed, nil
	}
	ds, err := checkDB(sc.BackendPath(), checkLimit, verify)
	switch {
	case err != nil:
		return 0, err
	case ws.last < ds.index:
		return 0, fmt.Errorf(
			"the log in %s ends at entry %d but the database has seen entry %d: acknowledged writes are missing",
			sc.WALDir(), ws.last, ds.index)
	case ds.index < ws.snapshot:
		return 0, fmt.Errorf("the database %s ends at entry %d but the log only begins after entry %d",
			sc.BackendPath(), ds.index, ws.snapshot)
	}
	return replayed, nil
}

// start runs etcd's constructor in a goroutine of its own, because a fatal error inside ends that goroutine. It
// replays the log up to entry replayed at least.
func (e *Embedded) start(ctx context.Context, sc config.ServerConfig, replayed uint64) error {
	made := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				e.fail.set(fmt.Errorf("etcd: %v", r))
			}
		}()
		srv, err := etcdserver.NewServer(sc)
		if err == nil {
			e.srv, e.clock = srv, clockOf(srv)
			e.clock.stop()
			srv.Start()
		}
		made <- err
	}()
	select {
	case err := <-made:
		if err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
	case <-e.fail.done:
		return e.fail.err
	case <-ctx.Done():
		// The constructor cannot be interrupted.
		_ = e.stop(func() {
			if <-made == nil {
				e.srv.HardStop()
			}
		}, e.fail.done)
		return fmt.Errorf("etcd: opening %s took too long: %w", sc.DataDir, context.Cause(ctx))
	}
	e.awaitReplay(ctx, replayed)
	e.clock.set(electionTick)
	select {
	case <-e.srv.ReadyNotify():
		e.clock.set(quietTick)
		go e.watchStop()
		go e.writeBatches()
		return nil
	case <-e.fail.done:
		return e.fail.err
	case <-e.srv.StopNotify():
		return errors.New("etcd: the server stopped while starting")
	case <-ctx.Done():
		_ = e.stop(e.srv.HardStop, nil)
		return fmt.Errorf("etcd: not ready in time: %w", context.Cause(ctx))
	}
}

// awaitReplay waits until the log has been applied up to an entry. How it goes on when that never is, start says.
func (e *Embedded) awaitReplay(ctx context.Context, entry uint64) {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for e.srv.AppliedIndex() < entry {
		select {
		case <-look.C:
		case <-e.fail.done:
			return
		case <-e.srv.StopNotify():
			return
		case <-ctx.Done():
			return
		}
	}
}

// watchStop notices a server that stops on its own.
func (e *Embedded) watchStop() {
	select {
	case <-e.closed:
	case <-e.fail.done:
	case <-e.srv.StopNotify():
		select {
		case <-e.closed:
		default:
			e.fail.set(errors.New("etcd: the server has stopped"))
		}
	}
}

// Shared is false: nobody else reaches the server.
func (e *Embedded) Shared() bool { return false }

// Failed is closed when the server has given up, for example because the disk is full.
func (e *Embedded) Failed() <-chan struct{} { return e.fail.done }

// Err says why the server has given up; nil while it runs.
func (e *Embedded) Err() error { return e.fail.get() }

// Close stops the server and unlocks the data directory. A server that has failed is abandoned, because it may
// never stop.
func (e *Embedded) Close() error {
	e.closeOnce.Do(func() {
		close(e.closed)
		e.closeErr = errors.Join(e.stop(e.stopUnused, e.fail.done), e.lock.Release())
	})
	return e.closeErr
}

// stopUnused stops the server when abandoned calls have ended, too.
func (e *Embedded) stopUnused() {
	e.using.Lock()
	defer e.using.Unlock()
	e.srv.Stop()
}

// stop calls f and waits for it, but not for ever, and not after giveUp is closed.
func (e *Embedded) stop(f func(), giveUp <-chan struct{}) error {
	stopped := make(chan struct{})
	go func() {
		f()
		close(stopped)
	}()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-stopped:
		return nil
	case <-giveUp:
		return nil
	case <-limit.C:
		return errors.New("etcd: the server did not stop in time")
	}
}

// call runs f in a goroutine of its own, which is abandoned when ctx ends or the server fails: etcd's goroutine that
// failed may hold locks for ever, and so may a disk that does not answer. A result that comes then is closed if it can
// be. The outcome is unknown when a call ends with ErrTimeout.
func call[T any](ctx context.Context, e *Embedded, f func(context.Context) (T, error)) (T, error) {
	return callFor(ctx, e, e.limit, f)
}

// callFor is call with another limit.
func callFor[T any](
	caller context.Context, e *Embedded, limit time.Duration, f func(context.Context) (T, error),
) (T, error) {
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	type result struct {
		v   T
		err error
	}
	done, abandoned := make(chan result), make(chan struct{})
	defer close(abandoned)
	go func() {
		e.using.RLock()
		defer e.using.RUnlock()
		var r result
		select {
		case <-e.closed:
			r.err = etcd.ErrClosed
		default:
			r.v, r.err = f(ctx)
		}
		select {
		case done <- r:
		case <-abandoned:
			if c, ok := any(r.v).(io.Closer); ok && r.err == nil {
				_ = c.Close()
			}
		}
	}()
	var zero T
	select {
	case r := <-done:
		if r.err == nil {
			return r.v, nil
		}
		if err := e.fail.get(); err != nil {
			return zero, err
		}
		if ctx.Err() != nil && caller.Err() == nil {
			return zero, etcd.ErrTimeout // not the caller has given up
		}
		return zero, serverError(r.err)
	case <-e.fail.done:
		return zero, e.fail.err
	case <-ctx.Done():
		if err := caller.Err(); err != nil {
			return zero, err
		}
		return zero, etcd.ErrTimeout
	}
}

// Txn runs one transaction.
func (e *Embedded) Txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if err := e.canWrite(req); err != nil {
		return nil, err
	}
	resp, err := call(ctx, e, func(ctx context.Context) (*etcdserverpb.TxnResponse, error) {
		return readAgain(ctx, func() (*etcdserverpb.TxnResponse, error) { return e.srv.Txn(ctx, req) })
	})
	if err == nil {
		e.acknowledge(resp.Header.Revision)
		e.batch.add(req)
	}
	return resp, err
}

func (e *Embedded) acknowledge(revision int64) {
	for old := e.acknowledged.Load(); revision > old; old = e.acknowledged.Load() {
		if e.acknowledged.CompareAndSwap(old, revision) {
			return
		}
	}
}

// Range reads keys.
func (e *Embedded) Range(ctx context.Context, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return call(ctx, e, func(ctx context.Context) (*etcdserverpb.RangeResponse, error) {
		return readAgain(ctx, func() (*etcdserverpb.RangeResponse, error) { return e.srv.Range(ctx, req) })
	})
}

// readAgain calls again what etcd gave up because the leader had changed. Here that is only the server itself as it
// starts, when it has not yet noticed that it leads now. Only reads are given up so: nothing has been written then.
func readAgain[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		v, err := read()
		if !errors.Is(err, servererrors.ErrLeaderChanged) || ctx.Err() != nil {
			return v, err
		}
	}
}

// Revision returns the newest revision that was acknowledged. No round of consensus is needed: there is no other
// member, the lock on the directory keeps other processes out, and all writes of this one come through Txn. (What
// etcd itself deletes when a lease expires is acknowledged to nobody.)
func (e *Embedded) Revision(context.Context) (int64, error) {
	if err := e.fail.get(); err != nil {
		return 0, err
	}
	return e.acknowledged.Load(), nil
}

// Grant makes a lease of ttl seconds.
func (e *Embedded) Grant(ctx context.Context, ttl int64) (int64, error) {
	if err := e.diskError(); err != nil {
		return 0, err
	}
	resp, err := call(ctx, e, func(ctx context.Context) (*etcdserverpb.LeaseGrantResponse, error) {
		return e.srv.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: ttl})
	})
	return resp.GetID(), err
}

// Compact discards the history before revision.
func (e *Embedded) Compact(ctx context.Context, revision int64) error {
	if err := e.diskError(); err != nil {
		return err
	}
	_, err := call(ctx, e, func(ctx context.Context) (*etcdserverpb.CompactionResponse, error) {
		return e.srv.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: revision})
	})
	return err
}
