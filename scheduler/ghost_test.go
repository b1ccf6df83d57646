package scheduler_test

import (
	"sync/atomic"
	"testing"
	"time"

	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// meddler does something in the middle of the decision about the pod "new".
type meddler struct{ meddle atomic.Pointer[func()] }

func (*meddler) Name() string { return "Meddler" }

func (m *meddler) Filter(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	if pod.Pod.GetMetadata().GetName() != "new" {
		return nil
	}
	if f := m.meddle.Swap(nil); f != nil {
		(*f)()
		time.Sleep(time.Second) // virtual: until everybody has heard of it
	}
	return nil
}

func withMeddler(t *testing.T, f func(w *world, m *meddler), more ...framework.Plugin) {
	t.Helper()
	m := &meddler{}
	inWorldWith(t, func(c *client.Client) scheduler.Config {
		plugins := append(scheduler.DefaultPlugins(c), framework.Enabled{Plugin: m})
		for _, p := range more {
			plugins = append(plugins, framework.Enabled{Plugin: p})
		}
		p, err := framework.NewProfile(scheduler.DefaultName, 0, plugins...)
		if err != nil {
			t.Fatal(err)
		}
		return scheduler.Config{Profiles: []*framework.Profile{p}, Seed: 1}
	}, func(w *world) { f(w, m) })
}

// A pod that is deleted while the decision about it is made evicts nobody, and no room is kept for it.
// spec: PREEMPT-2
func TestGonePodKeepsNoRoom(t *testing.T) {
	withMeddler(t, func(w *world, m *meddler) {
		defer w.agents()()
		w.full(1)
		remove := func() { w.force("new") }
		m.meddle.Store(&remove)
		w.addPod(ranked("new", 10, "2"))
		time.Sleep(5 * time.Second) // virtual
		if m.meddle.Load() != nil || w.pod("new") != nil {
			t.Fatal("nothing was tested")
		}
		if got := w.terminating(); got != "" {
			t.Errorf("%s are on their way out for nobody", got)
		}
		w.force("n1a")
		w.addPod(ranked("next", 9, "1"))
		time.Sleep(time.Minute) // virtual
		if got := w.nodeOf("next"); got != "n1" {
			t.Errorf("on %q", got)
		}
	})
}

// A pod that is deleted while the decision about it is made does not wait for a Permit plugin.
// spec: SCHED-1
func TestGonePodDoesNotWait(t *testing.T) {
	g := newGang()
	withMeddler(t, func(w *world, m *meddler) {
		w.addNode(newNode("n1", "cpu=2", "memory=8Gi", "pods=10"))
		remove := func() { w.force("new") }
		m.meddle.Store(&remove)
		w.addGang("new", "2", "cpu=2")
		time.Sleep(5 * time.Second) // virtual
		w.addPod(newPod("next", "cpu=2"))
		time.Sleep(30 * time.Second) // virtual: less than the plugin makes pods wait
		if got := w.nodeOf("next"); got != "n1" {
			t.Errorf("on %q", got)
		}
	}, g)
}
