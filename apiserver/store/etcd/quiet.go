package etcd

import (
	"reflect"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
)

// quieten slows raft's clock down once the only member of the cluster has been elected. From then on there is nobody
// whose silence the clock could find out, but etcd has its processor woken for every tick: a hundred times a second,
// which was most of what an idle cluster cost. A slow clock remains, so that even a leader that stepped down would be
// elected again.
//
// etcd sets the clock once and offers no way to change it, so that its ticker is looked up by reflection. The ways
// without that are worse:
//   - A slow clock from the beginning makes every start wait for two or three of its ticks.
//   - raft's message MsgTimeoutNow, which anybody may hand to etcd, has a member stand for election at once. But etcd
//     drops entries of the log from memory before raft knows that they are applied, and raft panics when it is to
//     stand for election in between. Only ticks come from the goroutine that tells raft so, and never in between.
//
// Should a later etcd name its fields otherwise, the server is as loud as before, and TestQuiet fails.
func quieten(srv *etcdserver.EtcdServer) {
	node := reflect.ValueOf(srv).Elem().FieldByName("r")
	if node.Kind() != reflect.Struct {
		return
	}
	ticker := node.FieldByName("ticker")
	if !ticker.IsValid() || ticker.Type() != reflect.TypeFor[*time.Ticker]() || ticker.IsNil() {
		return
	}
	(*time.Ticker)(ticker.UnsafePointer()).Reset(quietTick)
}
