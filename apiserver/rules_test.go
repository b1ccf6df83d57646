package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// onAnyServers runs a test on one server with an etcd of its own, and on two that share one.
func onAnyServers(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Run("one server", func(t *testing.T) { f(t, start(t)) })
	t.Run("two servers", func(t *testing.T) { f(t, startTwo(t)) })
}

// many runs f in as many goroutines as asked for, each with randomness and a client choice of its own.
func many(t *testing.T, workers int, f func(r *rand.Rand, worker int)) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() { f(rand.New(rand.NewPCG(seed, uint64(worker))), worker) })
	}
	running.Wait()
}

// history returns what became of the objects of some kinds since a revision, in order. Each kind must have had an
// object named "last" created after all else.
func (c *cluster) history(from int64, kinds ...*object.Kind) []object.Event {
	c.t.Helper()
	var events []object.Event
	for _, kind := range kinds {
		w := must(c.store.Watch(ctx(c.t), kind, store.WatchOptions{ResourceVersion: fmt.Sprint(from)}))(c.t)
		defer w.Stop()
		for ended := false; !ended; {
			for _, e := range must(w.Next(ctx(c.t)))(c.t) {
				ended = ended || e.Object.GetMetadata().GetName() == "last"
				events = append(events, e)
			}
		}
	}
	slices.SortStableFunc(events, func(a, b object.Event) int {
		return int(revision(a.Object.GetMetadata().GetResourceVersion()) - revision(
			b.Object.GetMetadata().GetResourceVersion()))
	})
	return events
}

const machineKey = "monoplane.dev/machine-key"

// Machines register under one name, with nodes that they make or that an administrator made, while pods are bound to
// the name, made there, and deleted, and nodes are deleted. At no revision do the node and the pods of the name belong
// to two machines.
//
// spec: NODE-7
func TestNodeNamesUnderConcurrency(t *testing.T) {
	onAnyServers(t, func(t *testing.T, c *cluster) {
		from := must(c.store.Revision(ctx(t)))(t)
		pod := func(r *rand.Rand) *corev1.Pod { return newPod(fmt.Sprint("p", r.IntN(3))) }
		agent := func(r *rand.Rand) client { return c.as(agentUser("n1", fmt.Sprint("key-", r.IntN(3)))) }
		many(t, 12, func(r *rand.Rand, _ int) {
			for range 60 {
				switch r.IntN(9) {
				case 0, 1, 2:
					_, _ = agent(r).Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n1")})
				case 3:
					_, _ = c.admin().Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n1")})
				case 4:
					_, _ = agent(r).Nodes.Patch(ctx(t), &metav1.PatchRequest{
						Name: "n1", PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":{"labels":{"a":"b"}}}`),
					})
				case 5:
					_, _ = c.admin().Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n1"})
				case 6:
					p, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: pod(r)})
					if err == nil {
						_ = c.bind(p, "n1")
					}
				case 7:
					p := pod(r)
					p.Spec.NodeName = "n1"
					_, _ = c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})
				case 8:
					_, _ = deletePod(t, c.admin(), pod(r), ptr(int64(0)), false)
				}
			}
		})
		must(c.admin().Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("last")}))(t)
		c.createPod(newPod("last"))
		machines, registered, bound := map[string]string{}, map[string]bool{}, 0
		for _, e := range c.history(from, corev1.NodeKind, corev1.PodKind) {
			m := e.Object.GetMetadata()
			of := e.Object.ObjectKind().Kind + " " + m.GetName()
			delete(machines, of)
			if key := m.GetAnnotations()[machineKey]; e.Type != object.Deleted && key != "" {
				machines[of] = key
				if strings.HasPrefix(of, "Node") {
					registered[key] = true
				} else {
					bound++
				}
			}
			if !oneMachine(machines) {
				t.Fatalf("two machines at %s: %v", m.GetResourceVersion(), machines)
			}
		}
		if len(registered) == 0 || bound == 0 {
			t.Errorf("%d machines registered, %d pods were bound", len(registered), bound)
		}
	})
}

func oneMachine(machines map[string]string) bool {
	one := ""
	for _, key := range machines {
		if one != "" && key != one {
			return false
		}
		one = key
	}
	return true
}

// Schedulers bind the same pods to nodes that come and go. A pod is bound once, as one of them was told and no other,
// to a node that is there.
//
// spec: LIFE-2, SCHED-3
func TestBindingUnderConcurrency(t *testing.T) {
	onAnyServers(t, func(t *testing.T, c *cluster) {
		const pods = 12
		from := must(c.store.Revision(ctx(t)))(t)
		created := make([]*corev1.Pod, pods)
		for i := range created {
			created[i] = c.createPod(newPod(fmt.Sprint("p", i)))
		}
		isBound := func(p *corev1.Pod) bool {
			live, err := c.getPod(p.Metadata.Name)
			return err != nil || live.Spec.NodeName != ""
		}
		var mu sync.Mutex
		told := map[string][]string{}
		const schedulers = 6
		var over atomic.Int32
		many(t, schedulers+2, func(r *rand.Rand, worker int) {
			if worker >= schedulers {
				for over.Load() < schedulers {
					name := fmt.Sprint("n", r.IntN(2))
					if r.IntN(2) == 0 {
						_, _ = c.agent(name).Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode(name)})
					} else {
						_, _ = c.admin().Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: name})
					}
				}
				return
			}
			defer over.Add(1)
			for _, i := range r.Perm(pods) {
				for p := created[i]; !isBound(p); {
					if node := fmt.Sprint("n", r.IntN(2)); c.bind(p, node) == nil {
						mu.Lock()
						told[p.Metadata.Name] = append(told[p.Metadata.Name], node)
						mu.Unlock()
					}
				}
			}
		})
		must(c.admin().Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("last")}))(t)
		c.createPod(newPod("last"))
		nodes, was := map[string]bool{}, map[string]string{}
		for _, e := range c.history(from, corev1.NodeKind, corev1.PodKind) {
			name := e.Object.GetMetadata().GetName()
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				nodes[name] = e.Type != object.Deleted
				continue
			}
			if node := p.Spec.NodeName; node != was[name] {
				if was[name] != "" || !nodes[node] {
					t.Errorf("%s moved from %q to %q; nodes: %v", name, was[name], node, nodes)
				}
				was[name] = node
			}
		}
		for _, p := range created {
			name := p.Metadata.Name
			if answers := told[name]; len(answers) != 1 || answers[0] != was[name] {
				t.Errorf("%s is bound to %q; the schedulers were told %v", name, was[name], answers)
			}
		}
	})
}

// Clients create objects in a namespace while it is deleted, emptied and let go, again and again. Nothing is created
// in a namespace that is being deleted or gone, and it goes empty.
//
// spec: OBJ-14, NS-1
func TestNamespacesUnderConcurrency(t *testing.T) {
	onAnyServers(t, func(t *testing.T, c *cluster) {
		const name = "short-lived"
		from := must(c.store.Revision(ctx(t)))(t)
		make := func(object string) {
			_, _ = c.admin().ConfigMaps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
				Metadata: &metav1.ObjectMeta{Namespace: name, Name: object},
			}})
		}
		var over atomic.Bool
		many(t, 5, func(_ *rand.Rand, worker int) {
			if worker > 0 {
				for i := 0; !over.Load(); i++ {
					make(fmt.Sprint("c", worker, "-", i))
				}
				return
			}
			defer over.Store(true)
			for round := range 5 {
				ns, err := c.admin().Namespaces.Create(ctx(t), &corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{
					Metadata: &metav1.ObjectMeta{Name: name},
				}})
				if err != nil {
					t.Error(err)
					return
				}
				make(fmt.Sprint("first-", round))
				_, _ = c.admin().Namespaces.Delete(ctx(t), &metav1.DeleteRequest{Name: name})
				ns = clone(ns)
				ns.Metadata.ResourceVersion, ns.Spec.Finalizers = "", nil
				all := &metav1.DeleteCollectionRequest{Namespace: name}
				_, _ = c.admin().ConfigMaps.DeleteCollection(ctx(t), all)
				_, _ = c.admin().ServiceAccounts.DeleteCollection(ctx(t), all)
				if _, err := c.admin().Namespaces.Finalize(ctx(t), &corev1rpc.UpdateNamespaceRequest{Object: ns}); err != nil {
					t.Errorf("what was emptied is not empty: %v", err)
					return
				}
			}
		})
		must(c.admin().Namespaces.Create(ctx(t), &corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{
			Metadata: &metav1.ObjectMeta{Name: "last"}}}))(t)
		must(c.admin().ConfigMaps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Namespace: "last", Name: "last"}}}))(t)
		open, gone, made, content := false, 0, 0, map[string]bool{}
		for _, e := range c.history(from, corev1.NamespaceKind, corev1.ConfigMapKind) {
			m := e.Object.GetMetadata()
			_, isNamespace := e.Object.(*corev1.Namespace)
			switch {
			case m.GetName() == "last":
			case isNamespace:
				open = e.Type != object.Deleted && m.DeletionTimestamp == nil
				if e.Type == object.Deleted {
					if gone++; len(content) > 0 {
						t.Errorf("gone at %s with %v", m.ResourceVersion, content)
					}
				}
			case e.Type == object.Deleted:
				delete(content, m.Name)
			default:
				if content[m.Name] = true; e.Type == object.Added {
					if made++; !open {
						t.Errorf("%s was created at %s in a namespace that is being deleted or gone", m.Name, m.ResourceVersion)
					}
				}
			}
		}
		if gone != 5 || made < 5 {
			t.Errorf("%d namespaces went, %d objects were made in them", gone, made)
		}
	})
}

// A namespace that was deleted and made again takes objects at once, also at a server whose cache still has the
// deletion.
//
// spec: OBJ-14
func TestNamespaceThatCameBack(t *testing.T) {
	onAnyServers(t, func(t *testing.T, c *cluster) {
		key := &metav1.ObjectMeta{Name: "again"}
		for range 20 {
			must(c.admin().Namespaces.Create(ctx(t),
				&corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{Metadata: key}}))(t)
			made := must(c.admin().ConfigMaps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
				Metadata: &metav1.ObjectMeta{Namespace: "again", Name: "c"}}}))(t)
			ns := must(c.admin().Namespaces.Delete(ctx(t), &metav1.DeleteRequest{Name: "again"}))(t)
			must(c.admin().ConfigMaps.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "again", Name: made.Metadata.Name}))(t)
			must(c.admin().ServiceAccounts.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "again", Name: "default"}))(t)
			ns = clone(ns)
			ns.Spec.Finalizers = nil
			must(c.admin().Namespaces.Finalize(ctx(t), &corev1rpc.UpdateNamespaceRequest{Object: ns}))(t)
		}
	})
}
