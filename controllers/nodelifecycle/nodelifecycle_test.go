package nodelifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/nodelifecycle"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/object/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with nodes whose agents say that they are there.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	agents map[string]context.CancelFunc
	stop   func()
	// log is what controllers say.
	log *bytes.Buffer
	// skew is by how much the agents' clocks are wrong.
	skew atomic.Int64
}

func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), agents: map[string]context.CancelFunc{},
			log: &bytes.Buffer{}}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		f(w)
		for name := range w.agents {
			w.silence(name)
		}
		if w.stop != nil {
			w.stop()
		}
	})
}

// control starts the controller, anew if it runs: 3 s after a full minute, so that it never looks at the very moment
// at which agents speak.
func (w *world) control(settings controller.NodeLifecycle) {
	w.Helper()
	time.Sleep(time.Until(time.Now().Add(30*time.Second).Round(time.Minute)) + 3*time.Second)
	if w.stop != nil {
		w.stop()
	}
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := nodelifecycle.New(nodelifecycle.Config{
		Client: w.server.Controller("node-lifecycle"), Shared: shared, Settings: settings,
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		w.Fatal(err)
	}
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	synctest.Wait()
	if err := c.Ready(); err != nil {
		w.Error(err)
	}
	w.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
	}
}

// nodes makes nodes that are ready, in a zone if it is not empty, and their agents.
func (w *world) nodes(zone string, names ...string) {
	w.Helper()
	for _, name := range names {
		n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if zone != "" {
			n.Metadata.Labels["topology.kubernetes.io/zone"] = zone
		}
		if _, err := w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: n}); err != nil {
			w.Fatal(err)
		}
		w.speak(name)
	}
}

// speak lets the agent of a node be heard every 10 s from now on.
func (w *world) speak(name string) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	w.agents[name] = func() { cancel(); <-done }
	w.report(name, "True")
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w.renew(ctx, name)
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
		}
	}()
	synctest.Wait()
}

// now is the time by the agents' clocks.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }

func (w *world) silence(name string) {
	w.agents[name]()
	delete(w.agents, name)
}

// report says that a node is ready, or is not.
func (w *world) report(name, ready string) {
	w.Helper()
	w.reportAs(w.Context(), name, ready)
}

func (w *world) reportAs(ctx context.Context, name, ready string) {
	w.Helper()
	n, err := w.c.Nodes.Get(ctx, &metav1.GetRequest{Name: name})
	if err != nil {
		w.Fatal(err)
	}
	n = object.Clone(n)
	n.Metadata.ResourceVersion = "" // whatever others write
	n.Status.Conditions = nil
	for kind, status := range map[string]string{"Ready": ready, "MemoryPressure": "False", "DiskPressure": "False",
		"PIDPressure": "False"} {
		n.Status.Conditions = append(n.Status.Conditions, &corev1.NodeCondition{
			Type: kind, Status: status, Reason: "Said", LastHeartbeatTime: value.Time(w.now()),
			LastTransitionTime: value.Time(w.now()),
		})
	}
	req := &corev1rpc.UpdateNodeRequest{Name: name, Object: n}
	if _, err := w.server.Agent(name).Nodes.UpdateStatus(ctx, req); err != nil {
		w.Fatal(err)
	}
}

// renew renews the lease of a node; what goes wrong is no business of the agent's.
func (w *world) renew(ctx context.Context, name string) {
	leases := w.server.Agent(name).Leases
	l := &coordinationv1.Lease{
		Metadata: &metav1.ObjectMeta{Namespace: builtin.NodeLeases, Name: name},
		Spec: &coordinationv1.LeaseSpec{
			HolderIdentity: proto.String(name), LeaseDurationSeconds: proto.Int32(40),
			RenewTime: value.MicroTime(w.now()),
		},
	}
	have, err := leases.Get(ctx, &metav1.GetRequest{Namespace: builtin.NodeLeases, Name: name})
	if err != nil {
		_, _ = leases.Create(ctx, &coordinationv1rpc.CreateLeaseRequest{Namespace: builtin.NodeLeases, Object: l})
		return
	}
	l.Metadata = object.Clone(have.GetMetadata())
	_, _ = leases.Update(ctx, &coordinationv1rpc.UpdateLeaseRequest{Namespace: builtin.NodeLeases, Name: name, Object: l})
}

func (w *world) node(name string) *corev1.Node {
	w.Helper()
	n, err := w.c.Nodes.Get(w.Context(), &metav1.GetRequest{Name: name})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) condition(name, kind string) *corev1.NodeCondition {
	w.Helper()
	for _, c := range w.node(name).GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func (w *world) taints(name string) string {
	w.Helper()
	var all []string
	for _, t := range w.node(name).GetSpec().GetTaints() {
		all = append(all, strings.TrimPrefix(t.GetKey(), "node.kubernetes.io/")+":"+t.GetEffect())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// is checks a node's condition Ready and its taints.
func (w *world) is(name, ready, taints string) {
	w.Helper()
	if got := w.condition(name, "Ready").GetStatus(); got != ready {
		w.Errorf("node %s is %q, want %q", name, got, ready)
	}
	if got := w.taints(name); got != taints {
		w.Errorf("node %s has taints %q, want %q", name, got, taints)
	}
}

const lost = "unreachable:NoExecute unreachable:NoSchedule"

// What the state of a node calls for is among its taints, and goes with it; what people gave it stays.
//
// spec: NODE-5
func TestTaintsFollowTheState(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b")
		w.control(controller.NodeLifecycle{})
		change := func(f func(*corev1.Node)) {
			t.Helper()
			n := object.Clone(w.node("a"))
			f(n)
			if _, err := w.c.Nodes.Update(w.Context(), &corev1rpc.UpdateNodeRequest{Name: "a", Object: n}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		change(func(n *corev1.Node) {
			n.Spec = &corev1.NodeSpec{Unschedulable: true, Taints: []*corev1.Taint{
				{Key: "team", Value: "x", Effect: "NoExecute"},
				{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"}, // which it is not
				{Key: "node.kubernetes.io/disk-pressure", Effect: "NoSchedule"},
				{Key: "node.kubernetes.io/disk-pressure", Effect: "NoExecute"},
			}}
		})
		w.is("a", "True", "disk-pressure:NoExecute team:NoExecute unschedulable:NoSchedule")
		change(func(n *corev1.Node) { n.Spec.Unschedulable = false })
		w.is("a", "True", "disk-pressure:NoExecute team:NoExecute")
		n := object.Clone(w.node("a"))
		for _, c := range n.Status.Conditions {
			if c.Type != "Ready" {
				c.Status = "True"
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, &corev1.NodeCondition{Type: "NetworkUnavailable", Status: "True"})
		if _, err := w.c.Nodes.UpdateStatus(w.Context(), &corev1rpc.UpdateNodeRequest{Name: "a", Object: n}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.is("a", "True", "disk-pressure:NoExecute disk-pressure:NoSchedule memory-pressure:NoSchedule "+
			"network-unavailable:NoSchedule pid-pressure:NoSchedule team:NoExecute")
		change(func(n *corev1.Node) { n.Spec.Taints = nil })
		w.report("a", "False")
		time.Sleep(6 * time.Second)
		w.is("a", "False", "not-ready:NoExecute not-ready:NoSchedule")
		w.silence("a")
		time.Sleep(61 * time.Second)
		w.is("a", "Unknown", lost)
		w.speak("a")
		time.Sleep(time.Second)
		w.is("a", "True", "")
		w.is("b", "True", "")
	})
}

// A node of which nobody has ever said how it is has more time, and is then said never to have spoken.
//
// spec: NODE-3
func TestStartupGrace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a")
		if _, err := w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{
			Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "never"}},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // which the controller did not see
		w.control(controller.NodeLifecycle{})
		time.Sleep(59 * time.Second)
		if c := w.condition("never", "Ready"); c != nil {
			t.Errorf("before its grace is over: %v", c)
		}
		time.Sleep(8 * time.Second)
		for _, kind := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
			if c := w.condition("never", kind); c.GetStatus() != "Unknown" || c.GetReason() != "NodeStatusNeverUpdated" ||
				!proto.Equal(c.GetLastHeartbeatTime(), w.node("never").GetMetadata().GetCreationTimestamp()) {
				t.Errorf("%s: %v", kind, c)
			}
		}
		if w.condition("never", "NetworkUnavailable") != nil {
			t.Error("a condition that no agent writes was made up")
		}
	})
}

// A controller that begins, or was away, gives each agent its whole grace, whatever the times in the objects; so it
// does when the API did not answer. Clocks may jump.
//
// spec: NODE-3
func TestGraceCountsWhileSomebodyListens(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b", "c")
		for _, name := range []string{"a", "b"} {
			w.silence(name)
		}
		time.Sleep(time.Hour) // the whole cluster was stopped, say
		w.control(controller.NodeLifecycle{})
		time.Sleep(48 * time.Second)
		w.is("a", "True", "")
		w.speak("a") // at the last moment
		time.Sleep(15 * time.Second)
		w.is("a", "True", "")
		w.is("b", "Unknown", lost)

		// Clocks that jump are those of agents that speak.
		for _, skew := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
			w.skew.Store(int64(skew))
			time.Sleep(2 * time.Minute)
			w.is("a", "True", "")
		}

		// The API does not take renewals, and does not answer the controller either.
		w.server.React(func(_ context.Context, method string, _ any) error {
			if strings.Contains(method, "Leases") {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		w.is("a", "True", "")
		w.server.React(nil)
		time.Sleep(10 * time.Minute)
		w.is("a", "True", "")

		// The controller has lost sight of the leases, and does not trust what it remembers.
		w.server.React(func(ctx context.Context, method string, _ any) error {
			if method == coordinationv1rpc.Leases_List_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.silence("c")
		time.Sleep(10 * time.Minute)
		w.is("c", "True", "")
		w.server.React(nil)
		time.Sleep(48 * time.Second)
		w.is("c", "True", "")
		time.Sleep(12 * time.Second)
		w.is("c", "Unknown", lost)
	})
}

// A controller that is cut off for a while begins anew. What stands still as a whole, as a process that was stopped,
// has not listened either: a look that comes late makes all grace start again.
//
// spec: NODE-3
func TestAwayIsNotSilence(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b")
		w.control(controller.NodeLifecycle{})
		time.Sleep(time.Minute)
		var late atomic.Bool
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == coordinationv1rpc.Leases_List_FullMethodName && late.CompareAndSwap(false, true) {
				time.Sleep(time.Minute) // the controller hangs, and nobody renews
			}
			return nil
		})
		w.silence("a")
		time.Sleep(65 * time.Second)
		w.is("a", "True", "")
		time.Sleep(40 * time.Second)
		w.is("a", "True", "")
		time.Sleep(20 * time.Second)
		w.is("a", "Unknown", lost)
		if !late.Load() {
			t.Error("nothing was tested")
		}
	})
}

// What was said after the last look counts: a node is lost only if its Lease and its object, read anew, agree.
//
// spec: NODE-3
func TestLiveReadsDecide(t *testing.T) {
	for what, method := range map[string]string{
		"lease": coordinationv1rpc.Leases_Get_FullMethodName, "node": corev1rpc.Nodes_Get_FullMethodName,
	} {
		inWorld(t, func(w *world) {
			w.nodes("", "a", "b")
			w.control(controller.NodeLifecycle{})
			w.silence("a")
			var spoke atomic.Int64
			w.server.React(func(ctx context.Context, m string, req any) error {
				if r, ok := req.(*metav1.GetRequest); m == method && ok && r.GetName() == "a" && ctx.Value(own{}) == nil &&
					spoke.CompareAndSwap(0, 1) {
					own := context.WithValue(ctx, own{}, true)
					if what == "lease" {
						w.renew(own, "a")
					} else {
						w.reportAs(own, "a", "True")
					}
				}
				return nil
			})
			time.Sleep(70 * time.Second)
			w.is("a", "True", "")
			time.Sleep(time.Minute)
			if w.is("a", "Unknown", lost); spoke.Load() != 1 {
				t.Error("nothing was tested")
			}
		})
	}
}

// own marks the calls of the test itself.
type own struct{}

// Nodes are evicted one after the other at the rate of their zone; when all nodes of all zones are lost none is, and
// those that were are not any more; when one comes back all have their grace again.
//
// spec: NODE-3
func TestRatesAndStops(t *testing.T) {
	inWorld(t, func(w *world) {
		var a []string
		for i := range 8 {
			a = append(a, fmt.Sprint("a", i))
		}
		w.nodes("a", a...)
		w.nodes("b", "b0", "b1", "b2")
		w.control(controller.NodeLifecycle{})
		evicted := func() (n int) {
			list, err := w.c.Nodes.List(w.Context(), &metav1.ListRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range list.GetItems() {
				for _, taint := range o.GetSpec().GetTaints() {
					if taint.GetEffect() == "NoExecute" {
						n++
					}
				}
			}
			return n
		}
		check := func(want int, when string) {
			t.Helper()
			if got := evicted(); got != want {
				t.Errorf("%s: %d nodes are evicted, want %d", when, got, want)
			}
		}
		time.Sleep(time.Minute)
		for _, name := range a[:4] { // half of the zone
			w.silence(name)
		}
		time.Sleep(58 * time.Second)
		w.is("a3", "Unknown", "unreachable:NoSchedule")
		check(1, "at once")
		time.Sleep(10 * time.Second)
		check(2, "10 s later")
		w.silence("a4") // five of eight: too many for a zone as small
		time.Sleep(4 * time.Minute)
		w.is("a4", "Unknown", "unreachable:NoSchedule")
		if n := evicted(); n < 4 {
			t.Errorf("%d nodes of those that were lost before are evicted", n)
		}
		check(4, "with much of the zone lost")
		for _, name := range a[5:] { // the whole zone, with another one that lives
			w.silence(name)
		}
		time.Sleep(3 * time.Minute)
		check(8, "with the zone lost")
		for _, name := range []string{"b0", "b1", "b2"} {
			w.silence(name)
		}
		time.Sleep(2 * time.Minute)
		check(0, "with all zones lost")
		for _, name := range append(a, "b0", "b1", "b2") {
			w.is(name, "Unknown", "unreachable:NoSchedule")
		}
		time.Sleep(time.Hour)
		check(0, "an hour later")
		if n := strings.Count(w.log.String(), "no pods are evicted"); n != 1 {
			t.Errorf("that no pods are evicted is said %d times", n)
		}
		w.speak("b0")
		time.Sleep(50 * time.Second)
		check(0, "with one node back")
		w.is("b0", "True", "")
		time.Sleep(2 * time.Minute)
		if evicted() == 0 {
			t.Error("nothing is evicted with one node back")
		}
		if !strings.Contains(w.log.String(), "pods are evicted again") {
			t.Error("that pods are evicted again is not said")
		}
	})
}

// The only node of a cluster is not ready while that is stopped and started, which nobody has to be warned of.
func TestRestartIsNoLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a")
		w.control(controller.NodeLifecycle{})
		time.Sleep(time.Minute)
		w.report("a", "False")
		time.Sleep(40 * time.Second)
		w.report("a", "True")
		time.Sleep(time.Minute)
		synctest.Wait()
		if said := w.log.String(); strings.Contains(said, "evicted") {
			t.Errorf("it said:\n%s", said)
		}
	})
}

// A zone that is large enough is evicted slowly while much of it is lost. A node that an administrator takes out of
// the count does not count.
//
// spec: NODE-3
func TestLargeZone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b", "c", "d")
		w.control(controller.NodeLifecycle{LargeZone: 3})
		for _, name := range []string{"a", "b", "c"} {
			w.silence(name)
		}
		time.Sleep(65 * time.Second)
		w.is("a", "Unknown", lost)
		w.is("b", "Unknown", "unreachable:NoSchedule")
		// The first one was lost after 55 s or 60 s, by what the controller's first look saw; b's turn is 100 s later.
		time.Sleep(85 * time.Second)
		w.is("b", "Unknown", "unreachable:NoSchedule")
		time.Sleep(25 * time.Second)
		w.is("b", "Unknown", lost)

		n := object.Clone(w.node("c"))
		n.Metadata.Labels = map[string]string{"node.kubernetes.io/exclude-disruption": ""}
		if _, err := w.c.Nodes.Update(w.Context(), &corev1rpc.UpdateNodeRequest{Name: "c", Object: n}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // two of three: not enough to say anything
		w.is("c", "Unknown", lost)
	})
}

// A node that comes and goes more often than nodes may be evicted costs no more turns than that, and is never evicted
// while it is there.
//
// spec: NODE-3
func TestFlapping(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b", "c", "d", "e")
		w.control(controller.NodeLifecycle{MonitorGrace: 10 * time.Second, MonitorPeriod: time.Second, EvictionRate: 0.01})
		begin := time.Now()
		var turns atomic.Int64
		w.server.After(func(_ context.Context, method string, req, _ any) error {
			r, ok := req.(*corev1rpc.UpdateNodeRequest)
			if !ok || method != corev1rpc.Nodes_Update_FullMethodName {
				return nil
			}
			for _, taint := range r.GetObject().GetSpec().GetTaints() {
				if taint.GetEffect() == "NoExecute" && time.Since(value.GoTime(taint.GetTimeAdded())) < time.Second {
					turns.Add(1)
				}
			}
			return nil
		})
		for range 30 {
			for _, name := range []string{"a", "b"} {
				w.silence(name)
			}
			time.Sleep(15 * time.Second)
			w.speak("a")
			w.speak("b")
			time.Sleep(5 * time.Second)
			w.is("a", "True", "")
			w.is("b", "True", "")
		}
		if most := 1 + int64(time.Since(begin)/(100*time.Second)); turns.Load() > most || turns.Load() < 2 {
			t.Errorf("%d nodes were evicted in %v; want %d at most", turns.Load(), time.Since(begin), most)
		}
	})
}

// The pods of a lost node are not ready; their phase stays, and so does everything of pods that have ended, and of
// successors. A pod that is bound to it later shows it, too.
//
// spec: LIFE-7, LIFE-11, DEL-11
func TestPodsOfALostNode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b")
		w.pod("runs", "a", "Running")
		w.pod("done", "a", "Succeeded")
		w.pod("other", "b", "Running")
		w.control(controller.NodeLifecycle{})
		w.silence("a")
		time.Sleep(time.Minute)
		w.pod("late", "a", "")
		time.Sleep(10 * time.Second)
		for name, want := range map[string]string{
			"runs": "Running False NodeLost", "late": "Pending False NodeLost", "done": "Succeeded True ",
			"other": "Running True ",
		} {
			p, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			got := p.GetStatus().GetPhase()
			for _, c := range p.GetStatus().GetConditions() {
				if c.GetType() == "Ready" {
					got += " " + c.GetStatus() + " " + c.GetReason()
				}
			}
			if got != want {
				t.Errorf("pod %s is %q, want %q", name, got, want)
			}
		}
		// It is said once.
		writes := w.server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName)
		time.Sleep(time.Hour)
		if n := w.server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName) - writes; n != 0 {
			t.Errorf("%d more writes", n)
		}
	})
}

// A pod that is deleted while its node is lost says what its deletion waits for, once, and with no further event.
//
// spec: FENCE-1
func TestDeletionWaitsForALostNode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b")
		w.pod("goes", "a", "Running")
		w.control(controller.NodeLifecycle{})
		w.silence("a")
		time.Sleep(time.Minute)
		says := func() string {
			p, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "goes"})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range p.GetStatus().GetConditions() {
				if c.GetType() == "Ready" {
					return c.GetReason() + " " + c.GetMessage()
				}
			}
			return ""
		}
		if got := says(); !strings.HasPrefix(got, "NodeLost nothing is heard of node a") || strings.Contains(got, "waits") {
			t.Errorf("before the deletion: %q", got)
		}
		writes := w.server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName)
		if _, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "goes"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := says(); !strings.Contains(got, "its deletion waits until the node is back") {
			t.Errorf("after it: %q", got)
		}
		w.is("a", "Unknown", lost)
		time.Sleep(time.Hour)
		if n := w.server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName) - writes; n != 1 {
			t.Errorf("%d writes", n)
		}
	})
}

// pod makes a pod that is bound; with a phase its agent has said that it is ready.
func (w *world) pod(name, node, phase string) {
	w.Helper()
	p, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec:     &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
	}})
	if err != nil {
		w.Fatal(err)
	}
	if phase == "" {
		return
	}
	p = object.Clone(p)
	p.Status.Phase = phase
	p.Status.Conditions = append(p.Status.Conditions, &corev1.PodCondition{Type: "Ready", Status: "True"})
	if _, err = w.server.Agent(node).Pods.UpdateStatus(w.Context(), &corev1rpc.UpdatePodRequest{Object: p}); err != nil {
		w.Fatal(err)
	}
}

// A quiet cluster costs no writes, and one list of leases per look.
func TestQuiet(t *testing.T) {
	inWorld(t, func(w *world) {
		w.nodes("", "a", "b", "c")
		w.control(controller.NodeLifecycle{})
		time.Sleep(time.Minute)
		count := func() map[string]int {
			n := map[string]int{}
			for _, m := range []string{
				corev1rpc.Nodes_Update_FullMethodName, corev1rpc.Nodes_UpdateStatus_FullMethodName,
				corev1rpc.Pods_UpdateStatus_FullMethodName, corev1rpc.Nodes_Get_FullMethodName,
				corev1rpc.Events_Create_FullMethodName, coordinationv1rpc.Leases_List_FullMethodName,
			} {
				n[m] = w.server.Calls(m)
			}
			return n
		}
		before := count()
		time.Sleep(time.Hour)
		for m, n := range count() {
			most := 0
			if m == coordinationv1rpc.Leases_List_FullMethodName {
				most = 721 // every 5 s
			}
			if n-before[m] > most {
				t.Errorf("%d calls of %s, want %d", n-before[m], m, most)
			}
		}
	})
}
