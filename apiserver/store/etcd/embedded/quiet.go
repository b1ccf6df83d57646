package embedded

import (
	"reflect"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
)

// clock is raft's clock. It stands still while etcd replays its log, runs fast until the only member of the cluster
// has been elected, and slowly from then on.
//
//   - While the log is replayed nobody may stand for election: etcd drops entries from memory as soon as they are
//     applied, and only then tells raft that they are. In between raft, which looks at them before an election,
//     panics: "error scanning unapplied entries". Ticks wait in a queue, so that this happens to a start on a busy
//     machine.
//   - Once the member is elected there is nobody whose silence the clock could find out, but etcd has its processor
//     woken for every tick: a hundred times a second, which was most of what an idle cluster cost. A slow clock
//     remains, so that even a leader that stepped down would be elected again.
//
// etcd sets the clock once and offers no way to change it, so that its ticker is looked up by reflection. The ways
// without that are worse: a slow clock from the beginning makes every start wait for two or three of its ticks; and
// raft's message MsgTimeoutNow, which anybody may hand to etcd, does not wait for the log either.
//
// Should a later etcd name its fields otherwise, the server is as loud as before, and TestQuiet fails.
type clock struct{ ticker *time.Ticker }

// clockOf returns the clock of a server; one that does nothing when it is not found.
func clockOf(srv *etcdserver.EtcdServer) clock {
	node := reflect.ValueOf(srv).Elem().FieldByName("r")
	if node.Kind() != reflect.Struct {
		return clock{}
	}
	ticker := node.FieldByName("ticker")
	if !ticker.IsValid() || ticker.Type() != reflect.TypeFor[*time.Ticker]() || ticker.IsNil() {
		return clock{}
	}
	return clock{(*time.Ticker)(ticker.UnsafePointer())}
}

// stop holds the clock.
func (c clock) stop() {
	if c.ticker != nil {
		c.ticker.Stop()
	}
}

// set lets the clock run, a tick each period.
func (c clock) set(period time.Duration) {
	if c.ticker != nil {
		c.ticker.Reset(period)
	}
}
