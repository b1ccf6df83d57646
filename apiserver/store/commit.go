package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/watchcache"
)

// Commit runs one transaction and returns the revision at which it happened. Reads of the newest state and Mutate see
// it from then on; reads of any state may not yet. When it returns an error other than a
// *ConflictError, the outcome may be unknown, and the objects in the transaction must not be used any more.
//
// Objects that are equal to what is stored are not stored again and keep their revision; if that holds for all
// of them, only the comparisons are made, and the revision is that of the newest object.
func (s *Store) Commit(ctx context.Context, txn Txn) (int64, error) {
	start := time.Now()
	a, err := s.attempt(ctx, txn)
	s.metrics.committed(time.Since(start), err)
	if err != nil {
		return 0, err
	}
	return a.revision, nil
}

// attempt is one transaction on its way.
type attempt struct {
	store *Store
	txn   Txn
	steps []step
	// revision is when it happened.
	revision int64
	// seen is a revision at which the comparisons did not hold.
	seen int64
}

// step is one operation, made ready.
type step struct {
	op     *Op
	kind   *kind
	key    string
	value  []byte // nil deletes
	writer uint64
	// same is the stored object when the operation changes nothing.
	same *watchcache.Item
}

// name is the key below the kind's prefix.
func (st *step) name() string { return st.key[len(st.kind.prefix):] }

// attempt tries a transaction once. With a *ConflictError the attempt is returned, too.
func (s *Store) attempt(ctx context.Context, txn Txn) (*attempt, error) {
	a, err := s.attemptOnce(ctx, txn)
	if errors.Is(err, etcd.ErrLeaseNotFound) {
		s.dropLeases()
		a, err = s.attemptOnce(ctx, txn)
	}
	return a, err
}

func (s *Store) attemptOnce(ctx context.Context, txn Txn) (*attempt, error) {
	if err := s.takeSlot(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.slots }()
	if err := s.keepUp(ctx, txn.Ops); err != nil {
		return nil, err
	}
	a := &attempt{store: s, txn: txn, steps: make([]step, len(txn.Ops))}
	if err := a.prepare(); err != nil {
		return nil, err
	}
	req, err := a.request(ctx)
	if err != nil {
		return nil, err
	}
	a.announce()
	for {
		at, err := a.try(ctx, req)
		switch {
		case err != nil:
			a.withdraw()
			return a, err
		case at > 0:
			a.finish(at)
			s.writes.passed()
			if !s.client.Shared() && slices.ContainsFunc(a.txn.Ops, func(op Op) bool { return op.Object == nil }) {
				s.relief.deleted()
			}
			return a, nil
		}
		// What was in the way has gone since.
	}
}

// takeSlot waits for the transaction's turn.
func (s *Store) takeSlot(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-limit.C:
		return s.writeError(etcd.ErrBusy)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try sends the request and returns the revision at which it happened; 0 if it did not and nothing shows why.
func (a *attempt) try(ctx context.Context, req *etcdserverpb.TxnRequest) (int64, error) {
	start := time.Now()
	resp, err := a.store.run(ctx, req)
	a.store.metrics.asked(a, time.Since(start), err)
	if err != nil {
		return 0, a.store.writeError(err)
	}
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	// Transactions seldom fail; asking afterwards keeps them small.
	found, err := a.look(ctx, req)
	if err != nil {
		return 0, err
	}
	if at := a.happened(found); at > 0 {
		return at, nil
	}
	return 0, a.conflict(found)
}

// prepare checks and encodes the operations.
func (a *attempt) prepare() error {
	if len(a.txn.Ops) == 0 && !slices.ContainsFunc(a.txn.Guards, func(g Guard) bool { return g.Condition == InTurn }) {
		return errors.New("store: a transaction that writes nothing")
	}
	size := 0
	for i := range a.txn.Ops {
		op, st := &a.txn.Ops[i], &a.steps[i]
		k, err := a.store.kindOf(op.Key)
		if err != nil {
			return err
		}
		for j := range i {
			if a.steps[j].kind == k {
				// Two events of one kind at one revision could not be resumed between.
				return fmt.Errorf("store: two operations on %s in one transaction", k.res.Kind.Resource())
			}
		}
		*st = step{op: op, kind: k, key: k.key(op.Key)}
		if op.Object == nil {
			continue
		}
		if op.Object.ObjectKind() != k.res.Kind {
			return fmt.Errorf("store: %s written to %s", op.Object.ObjectKind().Resource(), op.Key)
		}
		if st.value, err = encode(st.key, op.Object, a.store.table); err != nil {
			return err
		}
		if st.same = a.unchanged(st); st.same == nil {
			st.value = k.seal(st.key, st.value)
		}
		size += len(st.value) + len(st.key)
	}
	// The rest of the request is small: keys, numbers, and what the log adds.
	const margin = 16 * 1024
	if size > etcd.MaxRequestBytes-margin {
		return tooLarge(size)
	}
	return nil
}

func tooLarge(size int) error {
	return apierrors.New(apierrors.RequestEntityTooLarge,
		"the object is too large: %d bytes as stored, the limit is about %d", size, etcd.MaxRequestBytes)
}

// unchanged returns the stored object if the operation would write the same content again.
func (a *attempt) unchanged(st *step) *watchcache.Item {
	item := st.kind.cache.Get(st.name())
	if item == nil || item.Revision != st.op.Expect || item.Size != len(st.value) || st.op.Again {
		return nil
	}
	if st.kind.res.TTL != nil {
		return nil // writing it again prolongs its life
	}
	// Equal content has equal length, so that most changes are told without encoding the stored object again.
	if item.Object != st.op.Object {
		value, err := encode(st.key, item.Object, a.store.table)
		if err != nil || !bytes.Equal(value, st.value) {
			return nil
		}
	}
	return item
}

// announce lets the feed recognise what is about to be written.
func (a *attempt) announce() {
	s := a.store
	s.pendingMu.Lock()
	defer s.pendingMu.Unlock()
	for i := range a.steps {
		st := &a.steps[i]
		if st.value == nil || st.same != nil {
			continue
		}
		st.writer = s.writer.Add(1)
		setWriter(st.value, st.writer)
		s.pending[st.writer] = &pendingWrite{object: st.op.Object}
	}
}

// withdraw gives the objects back to the caller.
func (a *attempt) withdraw() {
	s := a.store
	s.pendingMu.Lock()
	defer s.pendingMu.Unlock()
	for i := range a.steps {
		delete(s.pending, a.steps[i].writer)
	}
}

// happened returns the revision at which the transaction took place, 0 if it did not. When the database is full,
// etcd carries out the transaction that fills it and yet reports that there was no space; sent again, it then
// fails because of itself.
func (a *attempt) happened(found map[string]*mvccpb.KeyValue) int64 {
	for i := range a.steps {
		st := &a.steps[i]
		if kv := found[st.key]; kv != nil && st.writer != 0 && writerOf(kv.Value) == st.writer {
			return kv.ModRevision
		}
	}
	return 0
}

// finish gives the objects their revision, unless the feed was faster. The transaction has happened; nobody waits for
// the feed, which is seldom more than a few microseconds behind.
func (a *attempt) finish(revision int64) {
	s := a.store
	s.pendingMu.Lock()
	defer s.pendingMu.Unlock()
	for i := range a.steps {
		st := &a.steps[i]
		if st.same != nil {
			a.revision = max(a.revision, st.same.Revision)
			if st.op.Object.GetMetadata().GetResourceVersion() != st.same.Object.GetMetadata().GetResourceVersion() {
				setRevision(st.op.Object, st.same.Revision)
			}
			continue
		}
		a.revision = revision
		s.settle(st.writer, revision)
	}
	if len(a.steps) == 0 {
		a.revision = revision // a turn was taken
	}
	s.written.Store(max(s.written.Load(), a.revision))
}

// run sends the request, and makes room first if there is none.
func (s *Store) run(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	resp, err := s.client.Txn(ctx, req)
	if !errors.Is(err, etcd.ErrNoSpace) {
		return resp, err
	}
	if rerr := s.relieve(ctx); rerr != nil {
		return nil, fmt.Errorf("%w: %w", err, rerr)
	}
	return s.client.Txn(ctx, req)
}

func unavailable(err error) error {
	return apierrors.New(apierrors.ServiceUnavailable, "%v", err).WithRetryAfter(1)
}

// writeError puts etcd's errors into the API's words.
func (s *Store) writeError(err error) error {
	switch {
	case s.client.Err() != nil:
		return apierrors.New(apierrors.ServiceUnavailable, "the store has failed: %v", s.client.Err())
	case errors.Is(err, etcd.ErrTooLarge):
		return tooLarge(etcd.MaxRequestBytes)
	case errors.Is(err, etcd.ErrNoSpace):
		return apierrors.New(apierrors.ServiceUnavailable, "the database is full: %v", err).WithRetryAfter(10)
	case errors.Is(err, etcd.ErrUnavailable):
		return unavailable(fmt.Errorf("%w; the write may still have happened", err))
	case errors.Is(err, etcd.ErrDisk):
		return apierrors.New(apierrors.ServiceUnavailable, "%v; reads go on, and writes do when that is mended", err).
			WithRetryAfter(10)
	case errors.Is(err, etcd.ErrTimeout):
		return apierrors.New(apierrors.Timeout, "etcd did not answer in time; the write may still happen").WithRetryAfter(1)
	case errors.Is(err, etcd.ErrBusy):
		return apierrors.New(apierrors.TooManyRequests, "etcd has too much to do").WithRetryAfter(1)
	case errors.Is(err, etcd.ErrClosed):
		return apierrors.New(apierrors.ServiceUnavailable, "the store is closed")
	default:
		return err
	}
}
