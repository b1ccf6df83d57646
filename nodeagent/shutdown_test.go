package nodeagent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/shutdown"
)

// Before the machine goes down pods end by priority, within their parts of the time, and fail. spec: DISR-4
func TestShutDown(t *testing.T) {
	inWorld(t, func(w *world) {
		var err error
		if w.cfg.Shutdown, err = shutdown.Split(30*time.Second, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		w.start()
		critical := edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" })
		w.create("critical", critical, grace(60), annotated("ignore-term", "true"))
		w.create("stubborn", grace(60), annotated("ignore-term", "true"))
		w.create("plain", grace(60), annotated("stop-after", "5s", "stop-code", "0"))
		w.settle()
		began := time.Since(w.began)
		done := make(chan error)
		go func() { done <- w.agent.ShutDown(w.t.Context()) }()
		time.Sleep(10 * time.Second)
		if why := w.agent.Unready(); why != "node is shutting down" || w.nodeCondition("Ready") != "False" {
			t.Errorf("the node is ready: %q, %s", why, w.nodeCondition("Ready"))
		}
		w.phase("critical", "Running")
		for _, name := range []string{"plain"} {
			s := w.phase(name, "Failed")
			if c := cond(s, "DisruptionTarget"); s.GetStatus().GetReason() != "Terminated" ||
				s.GetStatus().GetMessage() != "Pod was terminated in response to imminent node shutdown." ||
				c.GetReason() != "TerminationByKubelet" || c.GetStatus() != "True" {
				t.Errorf("%s: %v", name, s.GetStatus())
			}
		}
		w.create("late")
		w.settle()
		if s := w.phase("late", "Failed").GetStatus(); s.GetReason() != "NodeShutdown" {
			t.Errorf("late: %v", s)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(w.began) - began; took > 33*time.Second {
			t.Errorf("it took %s", took)
		}
		w.phase("stubborn", "Failed")
		w.phase("critical", "Failed")
		at := func(d time.Duration) string { return (began + d).Round(100 * time.Millisecond).String() }
		w.expect("stubborn", "START main/0 @0s", "TERM main/0 @"+at(0), "KILL main/0 @"+at(20*time.Second),
			"EXIT main/0 @"+at(20*time.Second))
		w.expect("critical", "START main/0 @0s", "TERM main/0 @"+at(20*time.Second), "KILL main/0 @"+at(30*time.Second),
			"EXIT main/0 @"+at(30*time.Second))
		if n := w.runs(); n != 0 {
			t.Errorf("%d containers run", n)
		}
		// The machine goes on after all.
		w.agent.StayUp()
		w.settle()
		if why := w.agent.Unready(); why != "" || w.nodeCondition("Ready") != "True" {
			t.Errorf("the node is not ready: %q, %s", why, w.nodeCondition("Ready"))
		}
		w.create("after")
		w.settle()
		w.phase("after", "Running")
	})
}

// The end of the machine may be announced by two: pods end once, both wait for that, and when the first gives up the
// second goes on. spec: DISR-4
func TestShutDownTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.Shutdown = shutdown.Plan{{Priority: 0, Period: 30 * time.Second}}
		w.start()
		w.create("stubborn", grace(60), annotated("ignore-term", "true"))
		w.settle()
		began := time.Now()
		first, giveUp := context.WithCancel(w.t.Context())
		done := make(chan error, 2)
		go func() { done <- w.agent.ShutDown(first) }()
		time.Sleep(5 * time.Second)
		go func() { done <- w.agent.ShutDown(w.t.Context()) }()
		time.Sleep(5 * time.Second)
		giveUp()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up gets %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.phase("stubborn", "Failed")
		if took := time.Since(began); took < 30*time.Second || took > 45*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
