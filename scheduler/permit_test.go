package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// gang lets pods labelled gang=N start together, N of them or none.
type gang struct {
	mu      sync.Mutex
	waiting map[string][]*framework.Waiting
	wait    *framework.Status
}

func newGang() *gang {
	return &gang{waiting: map[string][]*framework.Waiting{}, wait: framework.NewStatus(framework.Wait, "Gang",
		"waits for the others")}
}

func (*gang) Name() string { return "Gang" }

func (g *gang) Permit(
	state *framework.CycleState, pod *framework.PodInfo, _ string,
) (*framework.Status, time.Duration) {
	size := pod.Pod.GetMetadata().GetLabels()["gang"]
	if size == "" {
		return nil, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting[size] = append(g.waiting[size], state.Waiting())
	if fmt.Sprint(len(g.waiting[size])) == size {
		for _, w := range g.waiting[size] {
			w.Allow("Gang")
		}
	}
	return g.wait, time.Minute
}

// forget is for gangs that fell apart.
func (g *gang) forget(size string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting[size] = nil
}

func (g *gang) refuse(size string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiting[size] {
		w.Refuse(framework.NewStatus(framework.Unschedulable, "Gang", "no gangs today"))
	}
	g.waiting[size] = nil
}

func withGang(t *testing.T, f func(w *world, g *gang)) {
	t.Helper()
	g := newGang()
	inWorldWith(t, func(c *client.Client) scheduler.Config {
		plugins := append(scheduler.DefaultPlugins(c), framework.Enabled{Plugin: g})
		p, err := framework.NewProfile(scheduler.DefaultName, 0, plugins...)
		if err != nil {
			t.Fatal(err)
		}
		return scheduler.Config{Profiles: []*framework.Profile{p}, Binders: 2, Seed: 1}
	}, func(w *world) {
		w.addNode(newNode("n1", "cpu=8", "memory=8Gi", "pods=110"))
		f(w, g)
	})
}

func (w *world) addGang(name, size string, requests ...string) {
	w.Helper()
	p := newPod(name, requests...)
	p.Metadata.Labels = map[string]string{"gang": size}
	w.addPod(p)
	synctest.Wait()
}

// told says whether an event says that of a pod.
func (w *world) told(pod, message string) bool {
	w.Helper()
	l, err := w.c.Events.List(context.Background(), &metav1.ListRequest{})
	w.must(nil, err)
	return slices.ContainsFunc(l.GetItems(), func(e *corev1.Event) bool {
		return e.GetInvolvedObject().GetName() == pod && e.GetMessage() == message
	})
}

// Pods that a Permit plugin delays hold their room, but nobody up: neither other pods nor, more of them than there are
// binders, each other.
// spec: SCHED-1
func TestPermitWaits(t *testing.T) {
	withGang(t, func(w *world, _ *gang) {
		for i := range 4 {
			w.addGang(fmt.Sprint("g", i), "5", "cpu=1")
		}
		w.addPod(newPod("alone", "cpu=1"))
		time.Sleep(30 * time.Second)
		if w.nodeOf("alone") != "n1" || w.nodeOf("g0") != "" {
			w.Errorf("alone on %q, the first of the gang on %q", w.nodeOf("alone"), w.nodeOf("g0"))
		}
		w.addPod(newPod("big", "cpu=4")) // the gang's four and the one leave three
		if got := w.nodeOf("big"); got != "" {
			w.Errorf("the room of the gang was given away")
		}
		w.addGang("g4", "5", "cpu=1")
		for i := range 5 {
			if got := w.nodeOf(fmt.Sprint("g", i)); got != "n1" {
				w.Errorf("g%d is on %q", i, got)
			}
		}
	})
}

// A gang that does not come together gives its room up, says why, and tries again after its back-off.
// spec: SCHED-1
func TestPermitTimeout(t *testing.T) {
	withGang(t, func(w *world, g *gang) {
		w.addGang("g0", "2", "cpu=8")
		w.addPod(newPod("other", "cpu=8"))
		time.Sleep(59 * time.Second)
		if w.nodeOf("other") != "" {
			w.Error("the room was given away before the time was over")
		}
		g.forget("2")
		time.Sleep(1100 * time.Millisecond)
		const want = "rejected due to timeout after waiting 1m0s at plugin Gang"
		if w.nodeOf("other") != "n1" || !w.told("g0", want) {
			w.Errorf("other is on %q, the gang was told: %t", w.nodeOf("other"), w.told("g0", want))
		}
	})
}

// A refusal, and the end of the pod, give the room up at once.
// spec: SCHED-1
func TestPermitRefused(t *testing.T) {
	for name, end := range map[string]func(w *world, g *gang){
		"refused": func(_ *world, g *gang) { g.refuse("2") },
		"deleted": func(w *world, _ *gang) { w.force("g0") },
	} {
		t.Run(name, func(t *testing.T) {
			withGang(t, func(w *world, g *gang) {
				w.addGang("g0", "2", "cpu=8")
				other, first := newPod("other", "cpu=8"), int32(1)
				never := "Never" // it comes first, but does not preempt
				other.Spec.Priority, other.Spec.PreemptionPolicy = &first, &never
				w.addPod(other)
				synctest.Wait()
				end(w, g)
				time.Sleep(2 * time.Second) // the other one's back-off
				if w.nodeOf("other") != "n1" {
					w.Error("the room is still taken")
				}
				if name == "refused" && !w.told("g0", "no gangs today") {
					w.Error("the gang was not told")
				}
			})
		})
	}
}

// A stop ends all waits.
func TestStopWhileWaiting(t *testing.T) {
	withGang(t, func(w *world, _ *gang) { w.addGang("g0", "2") })
}
