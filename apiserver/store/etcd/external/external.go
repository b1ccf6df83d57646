// Package external talks to an etcd cluster elsewhere, through etcd's client.
//
// It guarantees that a transaction, a read, a lease and a compaction end within etcd.CallLimit, with etcd.ErrTimeout
// where the outcome is not known, and that errors are those of package etcd.
package external

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"monoplane.dev/apiserver/store/etcd"
)

// Config says how to reach a cluster.
type Config struct {
	// Endpoints are the cluster's client URLs, one at least.
	Endpoints []string
	// TLS is for Endpoints; nil for none.
	TLS *tls.Config
	// Maintain lets Relieve compact and defragment the cluster, which holds up all who use it.
	Maintain bool
}

// Connect is Dial for those who open a store. What is stored is the cluster's to verify.
func Connect(cfg Config) etcd.Connect {
	return func(ctx context.Context, _ func(key, value []byte) error) (etcd.Client, error) { return Dial(ctx, cfg) }
}

// External is a client of an external etcd cluster.
type External struct {
	cli       *clientv3.Client
	kv        etcdserverpb.KVClient
	lease     etcdserverpb.LeaseClient
	maintain  bool
	never     chan struct{}
	closeOnce sync.Once
	closeErr  error
}

const (
	dialTimeout = 5 * time.Second
	keepalive   = 10 * time.Second
	// maxBackoff is the longest pause between two attempts to reach a member. gRPC's own grows to two minutes, for which
	// writes would fail when etcd is long back.
	maxBackoff = 500 * time.Millisecond
	// Lists are paged, but an answer may hold many objects of the largest size.
	maxAnswerBytes = 512 << 20
)

// Dial connects to an external cluster and returns once it answers or ctx ends.
func Dial(ctx context.Context, cfg Config) (*External, error) {
	cli, err := connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	e := &External{
		cli: cli, kv: clientv3.RetryKVClient(cli), lease: clientv3.RetryLeaseClient(cli), never: make(chan struct{}),
		maintain: cfg.Maintain,
	}
	if _, err := e.Revision(ctx); err != nil {
		cli.Close()
		return nil, fmt.Errorf("etcd at %v: %w", cfg.Endpoints, err)
	}
	return e, nil
}

// connect makes a client, which may not be connected yet.
func connect(cfg Config) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, TLS: cfg.TLS, Logger: zap.NewNop(),
		DialTimeout: dialTimeout, DialKeepAliveTime: keepalive, DialKeepAliveTimeout: keepalive,
		MaxCallSendMsgSize: 2 * etcd.MaxRequestBytes, MaxCallRecvMsgSize: maxAnswerBytes,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: maxBackoff / 5, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: dialTimeout,
		})},
	})
}

var callOptions = []grpc.CallOption{
	grpc.MaxCallRecvMsgSize(maxAnswerBytes), grpc.MaxCallSendMsgSize(2 * etcd.MaxRequestBytes),
}

// ask calls etcd, which may be anywhere, and gives up after etcd.CallLimit: the client would try to reach it for ever.
func ask[T any](caller context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(caller, etcd.CallLimit)
	defer cancel()
	v, err := f(ctx)
	if err != nil && ctx.Err() != nil && caller.Err() == nil {
		return v, etcd.ErrTimeout
	}
	return v, remoteError(err)
}

// Txn runs one transaction.
func (e *External) Txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return ask(ctx, func(ctx context.Context) (*etcdserverpb.TxnResponse, error) {
		return e.kv.Txn(ctx, req, callOptions...)
	})
}

// Range reads keys.
func (e *External) Range(ctx context.Context, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return ask(ctx, func(ctx context.Context) (*etcdserverpb.RangeResponse, error) {
		return e.kv.Range(ctx, req, callOptions...)
	})
}

// Revision asks the cluster by a linearizable read of a key that does not exist.
func (e *External) Revision(ctx context.Context) (int64, error) {
	resp, err := e.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte{0}, CountOnly: true})
	return resp.GetHeader().GetRevision(), err
}

// Grant makes a lease of ttl seconds.
func (e *External) Grant(ctx context.Context, ttl int64) (int64, error) {
	resp, err := ask(ctx, func(ctx context.Context) (*etcdserverpb.LeaseGrantResponse, error) {
		return e.lease.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: ttl}, callOptions...)
	})
	return resp.GetID(), err
}

// Compact discards the history before revision.
func (e *External) Compact(ctx context.Context, revision int64) error {
	_, err := ask(ctx, func(ctx context.Context) (*clientv3.CompactResponse,
		error) {
		return e.cli.Compact(ctx, revision)
	})
	return err
}

// Relieve does nothing unless the cluster is ours to maintain. Then it compacts, and of the members that are full
// defragments each, and where that has made room switches its alarm for it off.
func (e *External) Relieve(ctx context.Context, revision int64) error {
	if !e.maintain {
		return etcd.ErrNotMaintained
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.RoomLimit)
	defer cancel()
	_, err := e.cli.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err := remoteError(err); err != nil && !errors.Is(err, etcd.ErrCompacted) {
		return fmt.Errorf("compact: %w", err)
	}
	alarms, err := e.cli.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("list alarms: %w", err)
	}
	full := map[uint64]bool{}
	for _, a := range alarms.Alarms {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			full[a.MemberID] = true
		}
	}
	for _, endpoint := range e.cli.Endpoints() {
		member, err := e.shrink(ctx, endpoint, full)
		if err != nil {
			return err
		}
		if !full[member] {
			continue
		}
		alarm := &clientv3.AlarmMember{MemberID: member, Alarm: etcdserverpb.AlarmType_NOSPACE}
		if _, err := e.cli.AlarmDisarm(ctx, alarm); err != nil {
			return fmt.Errorf("switch alarm off: %w", err)
		}
		delete(full, member)
	}
	for member := range full {
		return fmt.Errorf("member %x is full and not among the endpoints", member)
	}
	return nil
}

// shrink defragments the member at an endpoint if it is among the full ones, and returns which member that is.
func (e *External) shrink(ctx context.Context, endpoint string, full map[uint64]bool) (member uint64, err error) {
	before, err := e.cli.Status(ctx, endpoint)
	if err != nil {
		return 0, fmt.Errorf("status of %s: %w", endpoint, err)
	}
	member = before.Header.MemberId
	quota := before.DbSizeQuota
	if quota <= 0 { // before etcd 3.6
		quota = before.DbSize
	}
	if !full[member] || etcd.HasRoom(before.DbSize, quota) {
		return member, nil
	}
	// etcd is late to tell how much of the file is in use, so that only the smaller one says what was freed.
	if _, err := e.cli.Defragment(ctx, endpoint); err != nil {
		return member, fmt.Errorf("defragment %s: %w", endpoint, err)
	}
	after, err := e.cli.Status(ctx, endpoint)
	if err == nil && !etcd.HasRoom(after.DbSize, quota) {
		err = etcd.ErrNothingFreed
	}
	return member, err
}

// Snapshot copies the database of one member, followed by its SHA-256.
func (e *External) Snapshot(ctx context.Context, w io.Writer) error {
	r, err := e.cli.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("snapshot: %w", remoteError(err))
	}
	defer r.Close()
	if _, err := io.Copy(w, r); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// ForgetLog does nothing: the log is elsewhere.
func (e *External) ForgetLog(context.Context) error { return nil }

// ReleasePages does nothing: the database is elsewhere.
func (e *External) ReleasePages(context.Context) error { return nil }

// Shared is true.
func (e *External) Shared() bool { return true }

// Failed is never closed: the client goes on trying to reach the cluster.
func (e *External) Failed() <-chan struct{} { return e.never }

// Err is always nil.
func (e *External) Err() error { return nil }

// Close disconnects.
func (e *External) Close() error {
	e.closeOnce.Do(func() { e.closeErr = e.cli.Close() })
	return e.closeErr
}

// Watch delivers the changes of all keys with prefix from revision from on. The client resumes it by itself
// when the connection breaks.
func (e *External) Watch(_ context.Context, prefix string, from int64) (etcd.Watch, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	ch := e.cli.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
	return &externalWatch{e: e, ctx: ctx, cancel: cancel, ch: ch}, nil
}

type externalWatch struct {
	e      *External
	ctx    context.Context
	cancel context.CancelFunc
	ch     clientv3.WatchChan
}

func (w *externalWatch) Recv(ctx context.Context) (etcd.Batch, error) {
	var r clientv3.WatchResponse
	var ok bool
	select {
	case r, ok = <-w.ch:
	case <-ctx.Done():
		return etcd.Batch{}, ctx.Err()
	}
	switch {
	case !ok:
		return etcd.Batch{}, etcd.ErrClosed
	case r.CompactRevision != 0:
		return etcd.Batch{}, etcd.ErrCompacted
	case r.Err() != nil:
		return etcd.Batch{}, remoteError(r.Err())
	}
	b := etcd.Batch{Revision: r.Header.Revision, Events: r.Events}
	if n := len(r.Events); n > 0 {
		// The header may be ahead of the events while the watch catches up.
		b.Revision = r.Events[n-1].Kv.ModRevision
	}
	return b, nil
}

// Progress asks the server; the answer may not come while the watch catches up, and is then asked for again.
// The client finds the watch's stream by its context.
func (w *externalWatch) Progress(context.Context) { _ = w.e.cli.RequestProgress(w.ctx) }

func (w *externalWatch) Close() error {
	w.cancel()
	return nil
}

// remoteError translates an error that came over the wire.
func remoteError(err error) error {
	if err == nil {
		return nil
	}
	switch e := rpctypes.Error(err); {
	case errors.Is(e, rpctypes.ErrCompacted):
		return etcd.ErrCompacted
	case errors.Is(e, rpctypes.ErrFutureRev):
		return etcd.ErrFutureRevision
	case errors.Is(e, rpctypes.ErrRequestTooLarge):
		return etcd.ErrTooLarge
	case errors.Is(e, rpctypes.ErrNoSpace):
		return etcd.ErrNoSpace
	case errors.Is(e, rpctypes.ErrLeaseNotFound):
		return etcd.ErrLeaseNotFound
	case errors.Is(e, rpctypes.ErrTimeout), errors.Is(e, rpctypes.ErrTimeoutDueToConnectionLost),
		errors.Is(e, rpctypes.ErrTimeoutDueToLeaderFail):
		return etcd.ErrTimeout
	case errors.Is(e, rpctypes.ErrTooManyRequests):
		return etcd.ErrBusy
	case status.Code(err) == codes.Unavailable, status.Code(err) == codes.DataLoss: // of the latter are those of CORRUPT
		return fmt.Errorf("%w: %s", etcd.ErrUnavailable, status.Convert(err).Message())
	default:
		return err
	}
}
