package front

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// avoidFor is how long an endpoint that could not be connected to is left out while there are others.
const avoidFor = 5 * time.Second

// Backend is a port of a Service with the endpoints that requests for it go to, in turns. It is made without any; Set
// changes them at any time, also while requests are on their way. A nil *Backend has none.
type Backend struct {
	state atomic.Pointer[state]
	turn  atomic.Uint64
}

// state is what Set was told last.
type state struct {
	endpoints []*target
	http2     bool
}

// target is one endpoint.
type target struct {
	at netip.AddrPort
	// address is at in words.
	address string
	// avoid is until when the endpoint is left out, in nanoseconds since 1970.
	avoid atomic.Int64
}

// Set says which endpoints there are now; those that stay keep what is known about them. With http2 they are spoken to
// in HTTP/2 without TLS, as appProtocol kubernetes.io/h2c asks for.
func (b *Backend) Set(endpoints []netip.AddrPort, http2 bool) {
	next := &state{http2: http2}
	before := b.state.Load()
	for _, at := range endpoints {
		t := &target{at: at, address: at.String()}
		if before != nil {
			if i := slices.IndexFunc(before.endpoints, func(t *target) bool { return t.at == at }); i >= 0 {
				t = before.endpoints[i]
			}
		}
		next.endpoints = append(next.endpoints, t)
	}
	b.state.Store(next)
}

// pick returns the endpoint whose turn it is among those that were not tried yet; nil when there is none. Endpoints
// that failed a while ago are the last choice.
func (b *Backend) pick(tried []*target) (t *target, http2 bool) {
	if b == nil {
		return nil, false
	}
	s := b.state.Load()
	if s == nil || len(s.endpoints) == 0 {
		return nil, false
	}
	first, now := b.turn.Add(1), time.Now().UnixNano()
	for i := range uint64(len(s.endpoints)) {
		candidate := s.endpoints[(first+i)%uint64(len(s.endpoints))]
		switch {
		case slices.Contains(tried, candidate):
		case candidate.avoid.Load() < now:
			return candidate, s.http2
		case t == nil:
			t = candidate
		}
	}
	return t, s.http2
}

// failed notes that an endpoint could not be connected to.
func (t *target) failed() { t.avoid.Store(time.Now().Add(avoidFor).UnixNano()) }
