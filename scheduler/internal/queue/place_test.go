package queue

import (
	"testing"
	"time"

	"monoplane.dev/client/cache"
)

// Find says where a pod is on its whole way.
func TestFind(t *testing.T) {
	r := newRig(t)
	at := func(name, uid string) (string, int, time.Duration) {
		p, ok := r.Find(cache.Key{Namespace: "ns", Name: name}, uid)
		if !ok {
			return "", 0, 0
		}
		if p.NextTry.IsZero() {
			return p.State, p.Attempts, 0
		}
		return p.State, p.Attempts, p.NextTry.Sub(r.now)
	}
	expect := func(name, uid, state string, attempts int, next time.Duration) {
		t.Helper()
		if s, a, n := at(name, uid); s != state || a != attempts || n != next {
			t.Errorf("%s is %q after %d tries, next in %s; want %q, %d, %s", name, s, a, n, state, attempts, next)
		}
	}
	r.Add(pod("a", "1", 0))
	r.Add(pod("g", "2", 0, "gate"))
	expect("a", "1", "Active", 0, 0)
	expect("a", "other", "", 0, 0)
	expect("g", "2", "Gated", 0, 0)
	try := r.expect("a")
	expect("a", "1", "InFlight", 1, 0)
	try.Unschedulable([]string{"fit"})
	expect("a", "1", "Unschedulable", 1, MaxWait)
	if p, _ := r.Find(cache.Key{Namespace: "ns", Name: "a"}, "1"); len(p.WaitsFor) != 1 || p.WaitsFor[0] != "fit" ||
		p.LastFailure != r.now {
		t.Errorf("waits: %+v", p)
	}
	r.Activate(cache.Key{Namespace: "ns", Name: "a"}, "1")
	expect("a", "1", "BackingOff", 1, InitialBackoff)
}
