package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/prioritysort"
	"monoplane.dev/scheduler/plugins/schedulinggates"
)

// rig is a queue with a clock of its own. Plugin "fit" is helped by PodGone, "labels" by NodeLabels.
type rig struct {
	*testing.T
	*Queue
	now time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, now: time.Unix(1000, 0)}
	events := map[string]framework.Event{"fit": framework.PodGone, "labels": framework.NodeLabels}
	r.Queue = New(Config{
		Less:       prioritysort.Plugin{}.Less,
		PreEnqueue: schedulinggates.New().PreEnqueue,
		Interest: func(plugins []string, _ *framework.PodInfo) (e framework.Event) {
			for _, p := range plugins {
				e |= events[p]
			}
			return e
		},
		Helps: func(plugins []string, _ *framework.PodInfo, c *framework.Change) bool {
			for _, p := range plugins {
				if events[p]&c.Event != 0 {
					return true
				}
			}
			return false
		},
		Now: func() time.Time { return r.now },
	})
	return r
}

func pod(name, uid string, priority int32, gates ...string) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: uid},
		Spec:     &corev1.PodSpec{Priority: &priority},
	}
	for _, g := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, &corev1.PodSchedulingGate{Name: g})
	}
	return framework.NewPodInfo(p)
}

// A back-off is a span of time: its end keeps the monotonic reading of the clock, so that setting the clock back by an
// hour does not make the pod wait an hour longer.
// spec: SCHED-2
func TestBackoffIgnoresTheWallClock(t *testing.T) {
	r := newRig(t)
	r.now = time.Now()
	r.Add(pod("a", "1", 0))
	try, _ := r.Pop()
	try.Retry()
	ready := r.backoff.peek().ready
	if ready == ready.Round(0) { //nolint:staticcheck // == compares the monotonic reading too, which Round takes away
		t.Errorf("the back-off ends at %v, a time of the wall clock", ready)
	}
	if wait := ready.Sub(r.now); wait < InitialBackoff || wait >= InitialBackoff+window ||
		ready.Nanosecond()%int(window) != 0 {
		t.Errorf("it lasts %v, until %v", wait, ready)
	}
}

// pop returns the next pod's name, or "" and how long to wait.
func (r *rig) pop() (*Try, string) {
	t, next := r.Pop()
	if t == nil {
		return nil, next.String()
	}
	return t, t.Key.Name
}

func (r *rig) expect(want string) *Try {
	r.Helper()
	t, got := r.pop()
	if got != want {
		r.Fatalf("popped %s, want %s", got, want)
	}
	return t
}

// spec: SCHED-2
func TestOrder(t *testing.T) {
	r := newRig(t)
	r.Add(pod("a", "1", 0))
	r.Add(pod("b", "2", 0)) // at the same instant: in the order they came
	r.now = r.now.Add(time.Second)
	r.Add(pod("high", "3", 10))
	r.Add(pod("low", "4", -10))
	for _, want := range []string{"high", "a", "b", "low", "0s"} {
		r.expect(want)
	}
}

// spec: SCHED-2
func TestBackoff(t *testing.T) {
	r := newRig(t)
	r.Add(pod("a", "1", 0))
	for _, want := range []int{1, 2, 4, 8, 10, 10} {
		r.expect("a").Retry()
		r.expect(fmt.Sprintf("%ds", want))
		r.now = r.now.Add(time.Duration(want)*time.Second - 1)
		r.expect("1ms")
		r.now = r.now.Add(1)
	}
	r.expect("a").Done()
	r.expect("0s")
}

// spec: SCHED-2
func TestWokenByWhatHelps(t *testing.T) {
	r := newRig(t)
	r.Add(pod("a", "1", 0))
	r.expect("a").Unschedulable([]string{"fit"})
	r.now = r.now.Add(20 * time.Second)
	r.Change(framework.Change{Event: framework.NodeLabels})
	r.expect("4m40s")
	r.Change(framework.Change{Event: framework.PodGone})
	r.expect("a").Unschedulable([]string{"fit"})
	// So soon after the failure the back-off of the second try holds.
	r.Change(framework.Change{Event: framework.PodGone})
	r.expect("2s")
	r.now = r.now.Add(2 * time.Second)
	r.expect("a").Unschedulable([]string{"labels"})
	// Nothing helps: after five minutes it is tried all the same.
	r.now = r.now.Add(5 * time.Minute)
	r.expect("a")
}

// A change while the pod is being tried is not lost.
// spec: SCHED-2
func TestNoWakeUpIsLost(t *testing.T) {
	r := newRig(t)
	r.Add(pod("a", "1", 0))
	r.Add(pod("b", "2", 0))
	a := r.expect("a")
	r.Change(framework.Change{Event: framework.PodGone})
	b := r.expect("b")
	a.Unschedulable([]string{"fit"})
	b.Unschedulable([]string{"fit"}) // popped after the change, it was judged with it
	r.now = r.now.Add(time.Second)
	r.expect("a")
	r.expect("4m59s")
	if len(r.changes) != 0 {
		t.Error("changes pile up")
	}
}

// A pod that changed while it was being tried is tried again.
func TestUpdatedInFlight(t *testing.T) {
	r := newRig(t)
	r.Add(pod("a", "1", 0))
	try := r.expect("a")
	r.Update(pod("a", "1", 5), true)
	try.Unschedulable([]string{"fit"})
	r.now = r.now.Add(time.Second)
	if try = r.expect("a"); try.Priority != 5 {
		t.Error("the old state was tried")
	}
	r.Update(pod("a", "1", 5), false) // its own status update
	try.Unschedulable([]string{"fit"})
	r.expect("5m0s")
	r.Update(pod("a", "1", 6), true)
	r.expect("2s")
}

// spec: SCHED-2
func TestGates(t *testing.T) {
	r := newRig(t)
	r.Add(pod("a", "1", 0, "gate"))
	r.expect("0s")
	if _, _, _, gated := r.Len(); gated != 1 {
		t.Error("not gated")
	}
	r.Update(pod("a", "1", 0), true)
	r.expect("a")
}

func TestRemovedInFlight(t *testing.T) {
	r := newRig(t)
	for _, end := range []func(*Try){(*Try).Retry, (*Try).Done, func(t *Try) { t.Unschedulable(nil) }} {
		r.Add(pod("a", "1", 0))
		try := r.expect("a")
		r.Remove(cache.Key{Namespace: "ns", Name: "a"}, "other") // not this one
		r.Remove(cache.Key{Namespace: "ns", Name: "a"}, "1")
		r.Add(pod("a", "2", 0)) // a successor
		end(try)
		if next := r.expect("a"); next.UID != "2" {
			t.Error("the removed pod came back")
		} else {
			next.Done()
		}
		r.expect("0s")
	}
}

// Against a plain reference: every pod is in exactly one place, and none is forgotten.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := newRig(t)
		alive := map[string]string{} // name to uid
		var flying []*Try
		for step := range 500 {
			name := fmt.Sprint("p", rng.IntN(10))
			switch rng.IntN(8) {
			case 0, 1:
				uid := fmt.Sprint(step)
				r.Add(pod(name, uid, int32(rng.IntN(3))))
				alive[name] = uid
			case 2:
				r.Remove(cache.Key{Namespace: "ns", Name: name}, alive[name])
				delete(alive, name)
			case 3:
				r.now = r.now.Add(time.Duration(rng.IntN(5000)) * time.Millisecond)
			case 4:
				r.Change(framework.Change{Event: framework.Event(1 << rng.IntN(7))})
			case 5:
				if try, _ := r.Pop(); try != nil {
					flying = append(flying, try)
				}
			default:
				if len(flying) == 0 {
					continue
				}
				i := rng.IntN(len(flying))
				try := flying[i]
				flying = append(flying[:i], flying[i+1:]...)
				switch rng.IntN(3) {
				case 0:
					try.Retry()
				case 1:
					try.Unschedulable([]string{[]string{"fit", "labels"}[rng.IntN(2)]})
				default:
					try.Done()
					if alive[try.Key.Name] == try.UID {
						delete(alive, try.Key.Name)
					}
				}
			}
		}
		for _, try := range flying {
			try.Retry()
		}
		got := map[string]string{}
		for range 3 {
			r.now = r.now.Add(10 * time.Minute)
			for try, _ := r.Pop(); try != nil; try, _ = r.Pop() {
				if got[try.Key.Name] != "" {
					t.Fatalf("seed %d: %s popped twice", seed, try.Key.Name)
				}
				got[try.Key.Name] = try.UID
				try.Done()
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(alive) {
			t.Fatalf("seed %d: popped %v, want %v", seed, got, alive)
		}
		if len(r.changes) != 0 || len(r.flying) != 0 || len(r.pods) != 0 {
			t.Fatalf("seed %d: left over: %d changes, %d in flight, %d pods", seed, len(r.changes), len(r.flying), len(r.pods))
		}
	}
}

// Pods whose back-offs end at about the same time come back together, the most important one first.
// spec: SCHED-2, PRIO-3
func TestBackoffEndsByPriority(t *testing.T) {
	r := newRig(t)
	r.Add(pod("low", "1", 0))
	low := r.expect("low")
	r.Add(pod("high", "2", 10))
	high := r.expect("high")
	r.now = r.now.Add(10 * time.Millisecond)
	low.Retry()
	r.now = r.now.Add(30 * time.Millisecond)
	high.Retry()
	r.now = r.now.Add(970 * time.Millisecond) // the low one's second is over
	r.expect("90ms")
	r.now = r.now.Add(90 * time.Millisecond)
	r.expect("high")
	r.expect("low")
}

// A pod that room has been made for waits for nothing.
// spec: PREEMPT-2
func TestHurry(t *testing.T) {
	r := newRig(t)
	p := pod("a", "1", 0)
	r.Add(p)
	r.expect("a").Unschedulable([]string{"fit"})
	r.Hurry(p.Key, "another")
	r.expect("5m0s")
	r.Hurry(p.Key, p.UID) // from the waiting ones
	try := r.expect("a")
	r.Hurry(p.Key, p.UID) // while it is tried
	try.Unschedulable([]string{"fit"})
	r.expect("a").Retry()
	r.expect("4s")        // once
	r.Hurry(p.Key, p.UID) // from the back-off
	r.expect("a")
	r.Remove(p.Key, p.UID)
	r.Hurry(p.Key, p.UID)
	r.expect("0s")
}
