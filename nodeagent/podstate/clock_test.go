package podstate

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

// skewed is a clock that was ahead, by skew, until it was set right: what it stated then lies in the future.
type skewed struct {
	now  time.Time // with a monotonic reading
	skew time.Duration
}

// stated is what the runtime says of this moment.
func (s *skewed) stated() time.Time { return s.now.Round(0).Add(s.skew) }

// A clock that is set back after a container has ended does not delay its restart.
func TestBackoffWhenTheClockIsSet(t *testing.T) {
	for name, skew := range map[string]time.Duration{
		"kept": 0, "set back an hour": time.Hour, "set back a second": time.Second, "set back three days": 72 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			w := began(t, "Always")
			clock := skewed{now: time.Now(), skew: skew}
			w.now = clock.now
			exit := func() {
				t.Helper()
				in, ok := w.running("main")
				if !ok {
					t.Fatal("it does not run")
				}
				w.exit(in.ID, 1)
				for i := range w.instances {
					if w.instances[i].ID == in.ID {
						w.instances[i].FinishedAt = clock.stated()
					}
				}
				w.step(Observed{Seen: w.seen()})
			}
			exit()
			a := must[StartContainer](t, w, nil)
			w.step(ContainerRun{Index: a.Index, Instance: w.startContainer(a)})
			exit()
			w.pass(9 * time.Second)
			if _, ok := take[StartContainer](w, nil); ok {
				t.Error("started before its back-off of 10 s")
			}
			w.pass(2 * time.Second)
			if _, ok := take[StartContainer](w, nil); !ok {
				t.Error("its back-off of 10 s is not over after 11")
			}
		})
	}
}

// What was learned while the clock was right keeps its place in time: a difference of times that carry a monotonic
// reading does not depend on the clock.
func TestAnchor(t *testing.T) {
	now := time.Now()
	m := &StateMachine{now: now}
	past := now.Round(0).Add(-time.Minute)
	got := m.anchor(past)
	if !got.Round(0).Equal(past) || got.Round(0).Unix() != past.Unix() {
		t.Errorf("the status would say %s instead of %s", got, past)
	}
	if got == got.Round(0) { //nolint:staticcheck // == compares the monotonic reading too, which Round takes away
		t.Error("it is not tied to the time that runs in this process")
	}
	if got := m.anchor(now.Round(0).Add(time.Hour)); !got.Equal(now) {
		t.Errorf("a time in the future becomes %s", got)
	}
	if !m.anchor(time.Time{}).IsZero() {
		t.Error("no time became one")
	}
}

// activeDeadlineSeconds counts time that has passed: from what the agent knows while it runs, and from what the status
// says, but never from the future, after a restart. spec: LIFE-6
func TestDeadlineWhenTheClockIsSet(t *testing.T) {
	w := newModel("Always", 30, []string{"main"}, nil)
	w.pod.Spec.ActiveDeadlineSeconds = proto.Int64(10)
	w.pod.Status.StartTime = apiTime(w.now.Add(time.Hour))
	w.agentStarts()
	w.pass(11 * time.Second)
	if w.m.end.reason != "DeadlineExceeded" {
		t.Errorf("after 11 s: %q", w.m.end.reason)
	}
}
