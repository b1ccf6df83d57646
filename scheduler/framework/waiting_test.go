package framework

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// holder delays every pod for a time.
type holder struct {
	name  string
	after time.Duration
	early bool
}

func (h holder) Name() string { return h.name }

func (h holder) Permit(state *CycleState, _ *PodInfo, _ string) (*Status, time.Duration) {
	if h.early {
		state.Waiting().Allow(h.name) // by another goroutine, before this one is back
	}
	return NewStatus(Wait, h.name, "wait"), h.after
}

// spec: SCHED-1
func TestWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		holders []holder
		then    func(w *Waiting)
		after   time.Duration
		want    string
	}{
		"allowed by both": {
			[]holder{{"a", time.Minute, false}, {"b", time.Hour, false}}, func(w *Waiting) {
				w.Allow("a")
				time.Sleep(2 * time.Minute) // a's time is over, but a has allowed it
				w.Allow("b")
			}, 2 * time.Minute, "",
		},
		"allowed at once": {[]holder{{"a", time.Minute, true}}, func(*Waiting) {}, 0, ""},
		"the shorter time": {[]holder{{"a", time.Hour, false}, {"b", time.Minute, false}}, func(w *Waiting) { w.Allow("a") },
			time.Minute,
			"rejected due to timeout after waiting 1m0s at plugin b"},
		"no longer than 15 minutes": {[]holder{{"a", time.Hour, false}}, func(*Waiting) {}, 15 * time.Minute,
			"rejected due to timeout after waiting 15m0s at plugin a"},
		"the first refusal counts": {[]holder{{"a", time.Hour, false}}, func(w *Waiting) {
			time.Sleep(time.Second)
			w.Refuse(NewStatus(Unschedulable, "x", "no"))
			w.Refuse(NewStatus(Unschedulable, "y", "never"))
			w.Allow("a")
		}, time.Second, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Profile{}
				for _, h := range c.holders {
					p.permits = append(p.permits, h)
				}
				var state CycleState
				if s := p.Permit(&state, nil, "x"); s.Code() != Wait {
					t.Fatalf("permit says %v", s.Code())
				}
				began := time.Now()
				go c.then(state.Waiting())
				s := state.Waiting().Wait(t.Context())
				if s.Message() != c.want || time.Since(began) != c.after {
					t.Errorf("%q after %v", s.Message(), time.Since(began))
				}
				synctest.Wait()
			})
		})
	}
}

func TestWaitingEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state CycleState
		state.Waiting().hold("a", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s := state.Waiting().Wait(ctx); s.Code() != Error {
			t.Errorf("got %v", s.Code())
		}
	})
}

// flight is a PreBind plugin that knows whether it has something to do.
type flight struct {
	name string
	code Code
	ran  *[]string
}

func (f flight) Name() string { return f.name }

func (f flight) PreFlight(*CycleState, *PodInfo, string) *Status { return NewStatus(f.code, f.name) }

func (f flight) PreBind(context.Context, *CycleState, *PodInfo, string) *Status {
	*f.ran = append(*f.ran, f.name)
	return nil
}

// spec: SCHED-1
func TestPreFlight(t *testing.T) {
	var ran []string
	skips, works := flight{"skips", Skip, &ran}, flight{"works", Success, &ran}
	for _, c := range []struct {
		preBinds []PreBind
		busy     bool
		failed   bool
		ran      int
	}{
		{nil, false, false, 0},
		{[]PreBind{skips}, false, false, 0},
		{[]PreBind{skips, works}, true, false, 1},
		{[]PreBind{works, flight{"fails", Error, &ran}}, false, true, 0},
	} {
		ran = nil
		var state CycleState
		p := &Profile{preBinds: c.preBinds}
		busy, s := p.PreFlight(&state, nil, "x")
		if busy != c.busy || s.IsSuccess() == c.failed {
			t.Errorf("%v: busy %t, %v", c.preBinds, busy, s.Code())
		}
		if s.IsSuccess() {
			p.PreBind(t.Context(), &state, nil, "x")
		}
		if len(ran) != c.ran {
			t.Errorf("%v ran", ran)
		}
	}
}
