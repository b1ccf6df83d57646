package store

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// request builds etcd's form of the transaction.
func (a *attempt) request(ctx context.Context) (*etcdserverpb.TxnRequest, error) {
	req := &etcdserverpb.TxnRequest{
		Compare: make([]*etcdserverpb.Compare, 0, len(a.steps)+len(a.txn.Guards)),
		Success: make([]*etcdserverpb.RequestOp, 0, len(a.steps)),
	}
	for i := range a.steps {
		st := &a.steps[i]
		key := []byte(st.key)
		req.Compare = append(req.Compare, compareRevision(key, etcdserverpb.Compare_EQUAL, st.op.Expect))
		switch {
		case st.same != nil:
		case st.value == nil:
			req.Success = append(req.Success, deleteOp(key))
		default:
			lease, err := a.store.leaseFor(ctx, st)
			if err != nil {
				return nil, err
			}
			req.Success = append(req.Success, putOp(key, st.value, lease))
		}
	}
	for i := range a.txn.Guards {
		g := &a.txn.Guards[i]
		guarded, err := a.store.guardKey(g)
		if err != nil {
			return nil, err
		}
		key, result := []byte(guarded), etcdserverpb.Compare_EQUAL
		switch g.Condition {
		case Present:
			result = etcdserverpb.Compare_GREATER
		case InTurn:
			req.Success = append(req.Success, putOp(key, nil, 0))
		case Absent, AtRevision, InOffice:
		default:
			return nil, fmt.Errorf("store: guard on %s has no condition", g.Key)
		}
		req.Compare = append(req.Compare, compareRevision(key, result, g.revision()))
	}
	return req, nil
}

// revision is the number that the guard compares with.
func (g *Guard) revision() int64 {
	switch g.Condition {
	case AtRevision, InTurn, InOffice:
		return g.Revision
	}
	return 0
}

// look reads, at one revision, all keys that a refused transaction compares.
func (a *attempt) look(ctx context.Context, refused *etcdserverpb.TxnRequest) (map[string]*mvccpb.KeyValue, error) {
	req := &etcdserverpb.TxnRequest{}
	for _, c := range refused.Compare {
		req.Success = append(req.Success, rangeOp(c.Key))
	}
	// etcd reports a reading transaction that was interrupted as a fault of its own.
	resp, err := a.store.client.Txn(context.WithoutCancel(ctx), req)
	if err != nil {
		return nil, a.store.readError(err)
	}
	a.seen = resp.Header.Revision
	found := map[string]*mvccpb.KeyValue{}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			found[string(kv.Key)] = kv
		}
	}
	return found, nil
}
