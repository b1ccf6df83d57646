// Package etcd is what the store needs of an etcd, behind one small interface. It knows nothing of objects: keys and
// values are bytes. Package embedded below it runs a server inside this process, package external talks to a cluster
// elsewhere; who opens a store names one of them, so that whoever uses a store links neither.
package etcd

import (
	"context"
	"errors"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// MaxRequestBytes is the largest transaction that is accepted, in encoded size.
	MaxRequestBytes = 1536 * 1024
	// CallLimit bounds a call of a Client, whatever its caller allows: etcd gives up after some seconds, unless its disk
	// keeps it, and a client would try to reach a cluster for ever.
	CallLimit = time.Minute
	// RoomLimit does so for Relieve, which rewrites the database.
	RoomLimit = 10 * time.Minute
)

// Errors that callers tell apart. Others are passed on as etcd words them.
var (
	// ErrCompacted says that the revision asked for is no longer kept.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrFutureRevision says that the revision asked for does not exist yet.
	ErrFutureRevision = errors.New("revision is in the future")
	// ErrTooLarge says that a transaction exceeds MaxRequestBytes.
	ErrTooLarge = errors.New("request is too large")
	// ErrNoSpace says that the database has reached its quota. See Client.Relieve.
	ErrNoSpace = errors.New("database space exceeded")
	// ErrNothingFreed says that Relieve has found too little to free.
	ErrNothingFreed = errors.New("nearly all that is stored is in use: delete what is not needed")
	// ErrNotMaintained says that an external etcd is left to whoever maintains it.
	ErrNotMaintained = errors.New("the etcd is external, and has to be given room by whoever maintains it: delete what " +
		"is not needed, etcdctl compact, etcdctl defrag (or a larger --quota-backend-bytes), then etcdctl alarm disarm; " +
		"with --etcd-maintenance monoplane up does so itself")
	// ErrLeaseNotFound says that a lease has expired.
	ErrLeaseNotFound = errors.New("lease not found")
	// ErrTimeout says that the outcome of a request is unknown.
	ErrTimeout = errors.New("request timed out")
	// ErrBusy says that too much is waiting to be applied. The request was not carried out.
	ErrBusy = errors.New("too many requests")
	// ErrUnavailable says that etcd cannot be reached, or that too few of its members run and agree. The outcome of a
	// request is unknown: a connection may end when it has been sent.
	ErrUnavailable = errors.New("etcd is not available (do most of its members run, and is it reached?)")
	// ErrDisk says that the disk of an embedded etcd is full, or cannot be written to. The request was not carried out.
	ErrDisk = errors.New("the disk cannot be written to")
	// ErrClosed says that the client has been closed.
	ErrClosed = errors.New("etcd is stopped")
)

// Connect makes a client, and starts the server if it is embedded. It returns when that serves, or ctx ends. An
// embedded server refuses a database with a value that verify refuses.
type Connect func(ctx context.Context, verify func(key, value []byte) error) (Client, error)

// Client is what the store needs of an etcd. All methods are safe for concurrent use.
type Client interface {
	// Txn runs one transaction.
	Txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error)
	// Range reads keys.
	Range(ctx context.Context, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error)
	// Revision returns a revision not older than any write that was acknowledged before the call.
	Revision(ctx context.Context) (int64, error)
	// Watch delivers the changes of all keys with prefix from revision from on.
	Watch(ctx context.Context, prefix string, from int64) (Watch, error)
	// Grant makes a lease of ttl seconds.
	Grant(ctx context.Context, ttl int64) (int64, error)
	// Compact discards the history before revision.
	Compact(ctx context.Context, revision int64) error
	// Relieve makes room after ErrNoSpace: it compacts, defragments, and where that leaves room, switches the alarm of
	// full databases off, no other. It returns nil only when there is room, ErrNothingFreed when there is none, and
	// ErrNotMaintained when it may do nothing.
	Relieve(ctx context.Context, revision int64) error
	// Snapshot writes a consistent copy of the database, followed by its SHA-256.
	Snapshot(ctx context.Context, w io.Writer) error
	// ForgetLog drops from memory what etcd keeps of the last transactions, when it is embedded.
	ForgetLog(ctx context.Context) error
	// ReleasePages gives back the memory in which the process sees the database's file, when it has any.
	ReleasePages(ctx context.Context) error
	// Shared says whether others may write to it too.
	Shared() bool
	// Failed is closed when etcd has stopped for good on its own; Err then says why.
	Failed() <-chan struct{}
	Err() error
	// Close ends the client and, when it is embedded, the server.
	Close() error
}

// HasRoom says whether a database that takes used bytes of quota is worth writing to again.
func HasRoom(used, quota int64) bool { return quota-used >= quota/16 }

// Watch is a stream of changes.
type Watch interface {
	// Recv waits for changes. After an error the watch is over.
	Recv(ctx context.Context) (Batch, error)
	// Progress asks for a batch that says how far the watch is, even if nothing has changed.
	Progress(ctx context.Context)
	// Close ends the watch.
	Close() error
}

// Batch is a run of changes, oldest first. All events of a revision are in one batch.
type Batch struct {
	// Revision is how far the watch has come with this batch.
	Revision int64
	Events   []*mvccpb.Event
}
