package nodelifecycle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/tainteviction"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

// witness sees what reaches the server, and judges it.
type witness struct {
	*testing.T

	mu sync.Mutex
	// heard is when each node's agent was heard last, said what the node's taints were.
	heard map[string]time.Time
	said  map[string]string
	// turns are the times at which nodes of each zone were evicted, since the controller began.
	turns map[string][]time.Time
	// deleted are the uids of pods whose deletion was begun.
	deleted map[string]bool
	lost    int
}

const rate = 0.05 // nodes a second

// saw looks at a call that succeeded.
func (w *witness) saw(_ context.Context, method string, req, _ any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := req.(type) {
	case *coordinationv1rpc.UpdateLeaseRequest:
		w.heard[r.GetName()] = time.Now()
	case *coordinationv1rpc.CreateLeaseRequest:
		w.heard[r.GetObject().GetMetadata().GetName()] = time.Now()
	case *corev1rpc.UpdateNodeRequest:
		name := r.GetObject().GetMetadata().GetName()
		if method == corev1rpc.Nodes_Update_FullMethodName {
			w.tainted(name, r.GetObject())
			return nil
		}
		for _, c := range r.GetObject().GetStatus().GetConditions() {
			if c.GetType() != "Ready" {
				continue
			}
			if c.GetStatus() != "Unknown" {
				w.heard[name] = time.Now()
				continue
			}
			w.lost++
			if quiet := time.Since(w.heard[name]); quiet < 50*time.Second {
				w.Errorf("node %s was called lost %v after its agent was heard", name, quiet)
			}
		}
	case *metav1.DeleteRequest:
		uid := r.GetOptions().GetPreconditions().GetUid()
		if uid == "" || r.GetOptions().GracePeriodSeconds != nil {
			w.Errorf("deleted with %v", r)
		}
		if w.deleted[uid] {
			w.Errorf("pod %s was deleted again", r.GetName())
		}
		w.deleted[uid] = true
	}
	return nil
}

// tainted judges whether it was a node's turn to be evicted.
func (w *witness) tainted(name string, n *corev1.Node) {
	taints := ""
	for _, t := range n.GetSpec().GetTaints() {
		if t.GetEffect() == "NoExecute" {
			taints += t.GetKey()
		}
	}
	before := w.said[name]
	w.said[name] = taints
	if taints == "" || before != "" {
		return
	}
	zone := n.GetMetadata().GetLabels()["topology.kubernetes.io/zone"]
	turns := w.turns[zone]
	if k := len(turns); k > 0 && time.Since(turns[k-1]) < time.Duration(float64(time.Second)/rate) {
		w.Errorf("node %s was evicted %v after another one of its zone", name, time.Since(turns[k-1]))
	}
	w.turns[zone] = append(turns, time.Now())
}

// Whatever happens to agents, clocks, the API and the controllers: no node is called lost that was heard of within its
// grace, none is evicted before its turn, nothing is deleted twice, or by force, no phase changes, and in the end
// those are ready and untainted that are there, and those are not that are not.
//
// spec: NODE-3, DEL-8, DEL-11, LIFE-11, SAFE-2
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, func(w *world) { randomHistory(w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomHistory(w *world, r *rand.Rand) {
	see := &witness{T: w.T, heard: map[string]time.Time{}, said: map[string]string{}, turns: map[string][]time.Time{},
		deleted: map[string]bool{}}
	w.server.After(see.saw)
	var names []string
	for i := range 8 {
		name, zone := fmt.Sprint("n", i), []string{"a", "b"}[i%2]
		names = append(names, name)
		w.nodes(zone, name)
		w.tolerant(name+"-0", name, 0)
		w.tolerant(name+"-1", name, int64(r.IntN(200)))
		w.tolerant(name+"-2", name, -1)
	}
	restart := func() {
		see.mu.Lock()
		clear(see.turns) // who begins anew does not know when it was whose turn
		see.mu.Unlock()
		w.control(controller.NodeLifecycle{EvictionRate: rate, SecondaryEvictionRate: rate / 2})
	}
	stop := w.evictions()
	restart()
	for range 100 {
		name := names[r.IntN(len(names))]
		switch r.IntN(12) {
		case 0, 1, 2:
			if w.agents[name] != nil {
				w.silence(name)
			}
		case 3, 4, 5:
			if w.agents[name] == nil {
				w.speak(name)
			}
		case 6:
			w.skew.Store(int64(r.IntN(7200)-3600) * int64(time.Second))
		case 7:
			w.server.Cut()
		case 8:
			w.server.Expire()
		case 9: // for a while much fails
			var mu sync.Mutex
			dice := rand.New(rand.NewPCG(r.Uint64(), 2))
			w.server.React(func(_ context.Context, method string, _ any) error {
				mu.Lock()
				defer mu.Unlock()
				if dice.IntN(3) == 0 && !strings.Contains(method, "Watch") {
					return apierrors.New(apierrors.ServiceUnavailable, "down")
				}
				return nil
			})
			time.Sleep(time.Duration(r.IntN(90)) * time.Second)
			w.server.React(nil)
		case 10:
			restart()
		case 11:
			stop()
			stop = w.evictions()
		}
		time.Sleep(time.Duration(r.IntN(40)) * time.Second)
	}
	// In the end some are there.
	for i, name := range names {
		switch there := w.agents[name] != nil; {
		case i < 5 && !there:
			w.speak(name)
		case i >= 5 && there:
			w.silence(name)
		}
	}
	time.Sleep(10 * time.Minute)
	for i, name := range names {
		if i < 5 {
			w.is(name, "True", "")
		} else {
			w.is(name, "Unknown", lost)
		}
	}
	stop()
	list, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	if err != nil {
		w.Fatal(err)
	}
	if len(list.GetItems()) != 3*len(names) {
		w.Errorf("%d pods are there", len(list.GetItems()))
	}
	for _, p := range list.GetItems() {
		name := p.GetMetadata().GetName()
		if p.GetStatus().GetPhase() != "Running" {
			w.Errorf("pod %s is %s", name, p.GetStatus().GetPhase())
		}
		deleted, node := p.GetMetadata().GetDeletionTimestamp() != nil, p.GetSpec().GetNodeName()
		if last := strings.HasSuffix(name, "-2"); last && deleted || !last && !deleted && node >= names[5] {
			w.Errorf("pod %s of node %s is deleted: %t", name, node, deleted)
		}
	}
	if see.lost == 0 || len(see.deleted) == 0 {
		w.Errorf("%d nodes were lost, %d pods evicted: nothing was tested", see.lost, len(see.deleted))
	}
}

// evictions runs the controller that evicts pods.
func (w *world) evictions() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := tainteviction.New(tainteviction.Config{Client: w.server.Controller("taint-eviction"), Shared: shared})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	return func() { cancel(); <-done }
}

// tolerant makes a pod that runs and tolerates any taint for so many seconds, for ever below 0.
func (w *world) tolerant(name, node string, seconds int64) {
	w.Helper()
	l := &corev1.Toleration{Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds}
	if seconds < 0 {
		l.TolerationSeconds = nil
	}
	p, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &corev1.PodSpec{
			NodeName: node, Tolerations: []*corev1.Toleration{l},
			Containers: []*corev1.Container{{Name: "main", Image: "host"}},
		},
	}})
	if err != nil {
		w.Fatal(err)
	}
	p = object.Clone(p)
	p.Status.Phase = "Running"
	if _, err = w.server.Agent(node).Pods.UpdateStatus(w.Context(), &corev1rpc.UpdatePodRequest{Object: p}); err != nil {
		w.Fatal(err)
	}
}
