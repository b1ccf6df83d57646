package store

import "go.etcd.io/etcd/api/v3/etcdserverpb"

func compareRevision(key string, result etcdserverpb.Compare_CompareResult, revision int64) *etcdserverpb.Compare {
	return &etcdserverpb.Compare{
		Key: []byte(key), Target: etcdserverpb.Compare_MOD, Result: result,
		TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: revision},
	}
}

func putOp(key string, value []byte, lease int64) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: []byte(key), Value: value, Lease: lease},
	}}
}

func deleteOp(key string) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte(key)},
	}}
}

func rangeOp(key string) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: []byte(key)},
	}}
}
