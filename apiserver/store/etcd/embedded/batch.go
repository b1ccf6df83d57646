package embedded

import (
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// etcd applies transactions to a batch in memory, which it writes to its database from time to time; until then they
// are in the log on the disk. It looks ten times a second whether there is anything to write, which is a fifth of what
// an idle cluster wakes for. So it looks once a second instead, and what is written in between is bounded in bytes,
// which etcd does not do: several hundred large objects a second would otherwise all be kept.
const (
	batchInterval = time.Second
	batchBytes    = 2 << 20
)

// batch counts the bytes that etcd has in memory until its next write to the database.
type batch struct {
	bytes atomic.Int64
	// full has a value when batchBytes have been reached.
	full chan struct{}
}

func newBatch() *batch { return &batch{full: make(chan struct{}, 1)} }

// add counts the values that a transaction has written.
func (b *batch) add(req *etcdserverpb.TxnRequest) {
	var n int64
	for _, op := range req.GetSuccess() {
		n += int64(len(op.GetRequestPut().GetValue()))
	}
	if b.bytes.Add(n) < batchBytes {
		return
	}
	b.bytes.Store(0)
	select {
	case b.full <- struct{}{}:
	default: // the batch is about to be written
	}
}

// writeBatches writes each full batch to the database until the server ends.
func (e *Embedded) writeBatches() {
	for {
		select {
		case <-e.closed:
			return
		case <-e.fail.done:
			return
		case <-e.batch.full:
			e.writeBatch()
		}
	}
}

func (e *Embedded) writeBatch() {
	e.using.RLock()
	defer e.using.RUnlock()
	select {
	case <-e.closed:
	default:
		e.srv.Backend().ForceCommit()
	}
}
