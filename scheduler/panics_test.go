package scheduler_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// bomb panics at the extension point that a pod is named after.
type bomb struct{ off *atomic.Bool }

func (bomb) Name() string { return "Bomb" }

func (b bomb) at(point string, pod *framework.PodInfo) {
	if !b.off.Load() && pod.Key.Name == strings.ToLower(point) {
		panic("boom at " + point)
	}
}

func (b bomb) PreFilter(
	_ *framework.CycleState, p *framework.PodInfo, _ *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	b.at("PreFilter", p)
	return nil, nil
}

func (b bomb) Filter(_ *framework.CycleState, p *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	b.at("Filter", p)
	return nil
}

func (b bomb) PreScore(_ *framework.CycleState, p *framework.PodInfo, _ []*framework.NodeInfo) *framework.Status {
	b.at("PreScore", p)
	return nil
}

func (b bomb) Score(_ *framework.CycleState, p *framework.PodInfo, _ *framework.NodeInfo) int64 {
	b.at("Score", p)
	return 0
}

func (b bomb) Reserve(_ *framework.CycleState, p *framework.PodInfo, _ string) *framework.Status {
	b.at("Reserve", p)
	return nil
}

func (b bomb) Unreserve(_ *framework.CycleState, p *framework.PodInfo, _ string) { b.at("Reserve", p) }

func (b bomb) Permit(_ *framework.CycleState, p *framework.PodInfo, _ string) (*framework.Status, time.Duration) {
	b.at("Permit", p)
	return nil, 0
}

func (b bomb) PreBind(_ context.Context, _ *framework.CycleState, p *framework.PodInfo, _ string) *framework.Status {
	b.at("PreBind", p)
	return nil
}

func (b bomb) PostBind(_ context.Context, _ *framework.CycleState, p *framework.PodInfo, _ string) {
	b.at("PostBind", p)
}

// A plugin that panics fails the pod's cycle with an event, and nothing else: others are scheduled, and the pod when
// it panics no more. spec: SCHED-1
func TestPanics(t *testing.T) {
	var off atomic.Bool
	profile := func(c *client.Client) *framework.Profile {
		p, err := framework.NewProfile(scheduler.DefaultName, 0, append(scheduler.DefaultPlugins(c),
			framework.Enabled{Plugin: bomb{&off}})...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	inWorldWith(t, func(c *client.Client) scheduler.Config {
		return scheduler.Config{Profiles: []*framework.Profile{profile(c)}}
	}, func(w *world) {
		w.addNode(newNode("n1", "cpu=8", "memory=1Gi", "pods=20"))
		w.addNode(newNode("n2", "cpu=8", "memory=1Gi", "pods=20"))
		points := []string{"PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit", "PreBind"}
		for _, point := range points {
			w.addPod(newPod(strings.ToLower(point), "cpu=1"))
		}
		w.addPod(newPod("postbind", "cpu=1"))
		w.addPod(newPod("other", "cpu=1"))
		time.Sleep(time.Second)
		if w.nodeOf("other") == "" || w.nodeOf("postbind") == "" {
			t.Error("others are not scheduled")
		}
		events, err := w.c.Events.List(t.Context(), &metav1.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, point := range points {
			told := false
			for _, e := range events.GetItems() {
				told = told || e.GetInvolvedObject().GetName() == strings.ToLower(point) && e.GetReason() == "FailedScheduling" &&
					strings.Contains(e.GetMessage(), "a plugin panicked: boom at "+point)
			}
			if n := w.nodeOf(strings.ToLower(point)); !told || n != "" {
				t.Errorf("%s: bound to %q, event %v", point, n, told)
			}
		}
		off.Store(true)
		time.Sleep(20 * time.Second)
		for _, point := range points {
			if w.nodeOf(strings.ToLower(point)) == "" {
				t.Errorf("%s: not tried again", point)
			}
		}
	})
}
