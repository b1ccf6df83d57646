package store

import "go.etcd.io/etcd/api/v3/etcdserverpb"

// Each of etcd's messages is allocated with what it consists of.

func compareRevision(key []byte, result etcdserverpb.Compare_CompareResult, revision int64) *etcdserverpb.Compare {
	c := &struct {
		etcdserverpb.Compare
		target etcdserverpb.Compare_ModRevision
	}{}
	c.target.ModRevision = revision
	c.Key, c.Target, c.Result, c.TargetUnion = key, etcdserverpb.Compare_MOD, result, &c.target
	return &c.Compare
}

func putOp(key, value []byte, lease int64) *etcdserverpb.RequestOp {
	o := &struct {
		etcdserverpb.RequestOp
		request etcdserverpb.RequestOp_RequestPut
		put     etcdserverpb.PutRequest
	}{}
	o.put.Key, o.put.Value, o.put.Lease = key, value, lease
	o.request.RequestPut, o.Request = &o.put, &o.request
	return &o.RequestOp
}

func deleteOp(key []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: key},
	}}
}

func rangeOp(key []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: key},
	}}
}
