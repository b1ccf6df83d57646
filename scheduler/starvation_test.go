package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/test/objects"
)

// witness notes when pods are tried.
type witness struct {
	skip  *framework.Status
	mu    sync.Mutex
	tries map[string][]time.Time // by uid
}

func (*witness) Name() string { return "Witness" }

func (w *witness) PreFilter(
	_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[pod.UID] = append(w.tries[pod.UID], time.Now())
	return nil, w.skip
}

const (
	// shortBackoff makes it plain who comes first: a pod in back-off is passed by, as it should be.
	shortBackoff = 10 * time.Millisecond
	longestGrace = 20
)

// Pods of random priorities and sizes come and end, some of which may preempt and some not. What is guaranteed:
//
//   - Once nothing comes any more and victims have ended, no pod waits that fits on a node; nor one that may preempt
//     and would fit on a node without the lower ones. It does not take the five minutes after which everything is
//     tried again.
//   - A pod that waits is tried at least every five minutes.
//   - When a pod gets room that would have done for a waiting one of higher priority, that one has been tried just
//     before: it is passed by only during its back-off.
//
// spec: SCHED-2, PRIO-3, PREEMPT-2
func TestNobodyStarves(t *testing.T) {
	counts := objects.Counts{}
	n := played()
	for seed := range uint64(n) { //nolint:gosec // not negative
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			seen := &witness{skip: framework.NewStatus(framework.Skip, "Witness"), tries: map[string][]time.Time{}}
			inWorldWith(t, func(c *client.Client) scheduler.Config {
				profile, err := framework.NewProfile(scheduler.DefaultName, 0,
					append([]framework.Enabled{{Plugin: seen}}, scheduler.DefaultPlugins(c)...)...)
				if err != nil {
					t.Fatal(err)
				}
				return scheduler.Config{
					Profiles: []*framework.Profile{profile}, Seed: seed + 1, InitialBackoff: shortBackoff, MaxBackoff: shortBackoff,
				}
			}, func(w *world) {
				defer w.agents()()
				l := &life{world: w, rng: rand.New(rand.NewPCG(seed, 31)), preempting: seed%3 != 0}
				l.run()
				time.Sleep(3*longestGrace*time.Second + time.Second) // virtual: room is made on room that was made
				h := w.history()
				counts["bound"] += h.replay(t)
				counts["preempted"] += h.preempted
				counts["wait"] += h.checkNobodyWaits(t)
				time.Sleep(30 * time.Minute) // virtual
				counts["tried again"] += w.checkTried(seen)
				counts["passed by"] += w.history().checkOrder(t, seen)
			})
		})
	}
	counts.Floors(t, map[string]int{"bound": 12 * n, "preempted": 3 * n, "wait": n, "tried again": 80 * n,
		"passed by": n / 12})
}

// life is what pods come and end.
type life struct {
	*world
	rng        *rand.Rand
	preempting bool
	pods       int
}

func (l *life) run() {
	ctx := context.Background()
	for i := range 3 {
		l.addNode(newNode(fmt.Sprint("n", i), fmt.Sprint("cpu=", 2+l.rng.IntN(5)), "memory=8Gi", "pods=6"))
	}
	for range 80 {
		synctest.Wait()
		if l.rng.IntN(3) > 0 {
			priority, grace := int32(l.rng.IntN(6)), int64(l.rng.IntN(longestGrace+1)) //nolint:gosec // small
			p := newPod(fmt.Sprint("p", l.pods), fmt.Sprint("cpu=", 1+l.rng.IntN(4)))
			l.pods++
			p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = &priority, &grace
			if !l.preempting || l.rng.IntN(4) == 0 {
				p.Spec.PreemptionPolicy = &[]string{"Never"}[0]
			}
			l.addPod(p)
		} else if p, err := l.c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "ns",
			Name: fmt.Sprint("p", l.rng.IntN(l.pods+1))}); err == nil {
			if p.GetSpec().GetNodeName() == "" {
				l.force(p.GetMetadata().GetName())
			} else {
				p = object.Clone(p)
				p.Status.Phase, p.Metadata.ResourceVersion = "Succeeded", ""
				l.must(l.server.Agent(p.GetSpec().GetNodeName()).Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{Object: p}))
			}
		}
		if l.rng.IntN(3) > 0 { // else several at once
			time.Sleep(time.Duration(100+l.rng.IntN(4000)) * time.Millisecond) // virtual
		}
	}
}

// checkNobodyWaits returns how many pods wait, for good reason.
func (h *history) checkNobodyWaits(t *testing.T) (waiting int) {
	t.Helper()
	for name, p := range h.pods {
		if p.GetSpec().GetNodeName() != "" {
			continue
		}
		waiting++
		for at, n := range h.nodes {
			if h.refuses(n, p) == "" {
				t.Errorf("%s waits although it fits on %s", name, at)
			}
			if p.GetSpec().GetPreemptionPolicy() != "Never" && h.above(p.GetSpec().GetPriority()).refuses(n, p) == "" {
				t.Errorf("%s waits although it could preempt on %s", name, at)
			}
		}
	}
	return waiting
}

// above leaves out the pods of lower priority.
func (h *history) above(priority int32) *history {
	c := &history{pods: map[string]*corev1.Pod{}, nodes: h.nodes}
	for name, p := range h.pods {
		if p.GetSpec().GetPriority() >= priority {
			c.pods[name] = p
		}
	}
	return c
}

// checkTried says of all that wait whether they were tried often enough, and returns how many of their tries were
// seen.
func (w *world) checkTried(seen *witness) (tries int) {
	w.Helper()
	list, err := w.c.Pods.List(context.Background(), &metav1.ListRequest{})
	w.must(nil, err)
	for _, p := range list.GetItems() {
		if p.GetSpec().GetNodeName() != "" {
			continue
		}
		last := time.Unix(p.GetMetadata().GetCreationTimestamp().GetSeconds(), 0)
		for _, at := range append(seen.tries[p.GetMetadata().GetUid()], time.Now()) {
			if at.Sub(last) > 5*time.Minute+2*time.Second {
				w.Errorf("%s was not tried for %v", p.GetMetadata().GetName(), at.Sub(last))
			}
			last = at
			tries++
		}
	}
	return tries
}

// checkOrder replays the history to see whether pods that got room took it from a higher one. It returns how often a
// higher one was passed by during its back-off.
func (h *history) checkOrder(t *testing.T, seen *witness) (passed int) {
	t.Helper()
	for _, c := range h.changes {
		name := c.object.GetMetadata().GetName()
		switch o := c.object.(type) {
		case *corev1.Node:
			h.nodes[name] = o
		case *corev1.Pod:
			was := h.pods[name]
			delete(h.pods, name)
			if c.deleted || o.GetStatus().GetPhase() == "Succeeded" {
				continue
			}
			if at := o.GetSpec().GetNodeName(); at != "" && was.GetSpec().GetNodeName() == "" {
				passed += h.passedBy(t, seen, o, h.nodes[at])
			}
			h.pods[name] = o
		}
	}
	return passed
}

func (h *history) passedBy(t *testing.T, seen *witness, p *corev1.Pod, n *corev1.Node) (passed int) {
	t.Helper()
	tries := seen.tries[p.GetMetadata().GetUid()]
	decided := tries[len(tries)-1] // it was bound after that
	for name, higher := range h.pods {
		if higher.GetSpec().GetNodeName() != "" || higher.GetSpec().GetPriority() <= p.GetSpec().GetPriority() ||
			h.refuses(n, higher) != "" {
			continue
		}
		before := time.Unix(higher.GetMetadata().GetCreationTimestamp().GetSeconds(), 0)
		for _, at := range seen.tries[higher.GetMetadata().GetUid()] {
			if !at.After(decided) {
				before = at
			}
		}
		if decided.Sub(before) > shortBackoff+time.Second {
			t.Errorf("%s got room at %v that would have done for %s, which was tried at %v", p.GetMetadata().GetName(), decided,
				name, before)
		}
		passed++
	}
	return passed
}
