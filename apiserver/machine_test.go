package apiserver_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// TestDeletionUnderConcurrency lets clients with all identities create, bind, write, delete and force the same
// few pods at once, and nodes come and go. A watch records every revision of every pod. Then each change must
// be explained by exactly one acknowledged operation, and be what a small model of the specification says
// that this operation does to the pod as it was. At the end every deletion must be able to end.
//
// A failing run prints its seed (-rapid.seed).
//
// spec: DEL-1, DEL-2, DEL-3, DEL-4, DEL-5, DEL-6, DEL-7, DEL-8, DEL-11, DEL-13, DEL-14, LIFE-2, LIFE-10, GC-1, GC-2,
// SAFE-2
func TestDeletionUnderConcurrency(t *testing.T) { deletionUnderConcurrency(t, start(t), 100) }

// The same with every other request at another server of the same etcd. It takes longer, and so is done less often.
//
// spec: DEL-8, DEL-11, DEL-14, LIFE-2, LIFE-10, GC-1, SAFE-2
func TestDeletionUnderConcurrencyOfTwoServers(t *testing.T) {
	deletionUnderConcurrency(t, startTwo(t), 15)
}

func deletionUnderConcurrency(t *testing.T, c *cluster, rounds int) {
	if testing.Short() { // enough to see a data race
		rounds /= 5
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		if round++; round > rounds {
			return
		}
		m := &machine{cluster: c, rt: rt, namespace: "round-" + strconv.Itoa(round)}
		m.run(rapid.SliceOfN(rapid.SliceOfN(genOperation(), 10, 40), 2, 5).Draw(rt, "programs"))
	})
}

// operation is one thing that a client tries.
type operation struct {
	kind  string
	pod   string
	node  string
	by    string
	phase string
	grace *int64
	uid   string // "none", "current" or "stale"
	rv    string // the same, of a deletion
	hold  bool
}

func (o operation) String() string {
	grace := "-"
	if o.grace != nil {
		grace = strconv.FormatInt(*o.grace, 10)
	}
	return fmt.Sprintf("%s pod=%s node=%s by=%s phase=%s grace=%s uid=%s rv=%s hold=%v",
		o.kind, o.pod, o.node, o.by, o.phase, grace, o.uid, o.rv, o.hold)
}

func genOperation() *rapid.Generator[operation] {
	return rapid.Custom(func(t *rapid.T) operation {
		return operation{
			kind: rapid.SampledFrom([]string{
				"create", "create", "bind", "bind", "delete", "delete", "delete", "phase", "phase", "annotate", "update",
				"hold", "release", "node-delete", "node-register", "clock",
			}).Draw(t, "kind"),
			pod:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pod"),
			node:  rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node"),
			by:    rapid.SampledFrom([]string{"user", "n1", "n2", "podgc", "namespace", "scheduler"}).Draw(t, "by"),
			phase: rapid.SampledFrom([]string{"Running", "Succeeded", "Failed"}).Draw(t, "phase"),
			grace: rapid.Ptr(rapid.SampledFrom([]int64{-1, 0, 0, 1, 5, 30, 60}), true).Draw(t, "grace"),
			uid:   rapid.SampledFrom([]string{"none", "current", "current", "current", "stale"}).Draw(t, "uid"),
			rv:    rapid.SampledFrom([]string{"none", "none", "current", "stale"}).Draw(t, "rv"),
			hold:  rapid.IntRange(0, 3).Draw(t, "hold") == 0,
		}
	})
}

// done is an acknowledged operation.
type done struct {
	operation
	// uid is that of the pod it was acknowledged for; rv is the revision of its answer, empty when it has none.
	uid, rv string
	// wanted is the resourceVersion that a deletion was to find, empty when it did not ask for one.
	wanted string
	// gone says that the answer means that the pod is gone.
	gone bool
	// key is the annotation that it added.
	key string
	// begun and ended are the times around it.
	begun, ended time.Time
}

type machine struct {
	*cluster
	rt        *rapid.T
	namespace string

	mu    sync.Mutex
	acked []done
	uids  []string // every uid ever seen, for stale preconditions
	rvs   []string // every resourceVersion ever seen, for the same
}

func (m *machine) run(programs [][]operation) {
	admin := m.admin()
	ns := must(admin.Namespaces.Create(ctx(m.t), &corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{
		Metadata: &metav1.ObjectMeta{Name: m.namespace}}}))(m.t)
	for _, n := range []string{"n1", "n2"} {
		m.do(operation{kind: "node-register", node: n}, 0, 0)
	}
	pods := must(admin.Pods.Watch(ctx(m.t),
		&metav1.WatchRequest{Namespace: m.namespace, ResourceVersion: ns.Metadata.ResourceVersion}))(m.t)
	nodes := must(admin.Nodes.Watch(ctx(m.t), &metav1.WatchRequest{}))(m.t)
	must(nodes.Header())(m.t) // it begins with the nodes as they are when it is accepted

	var clients sync.WaitGroup
	for i, program := range programs {
		clients.Go(func() {
			for j, op := range program {
				m.do(op, i, j)
			}
		})
	}
	clients.Wait()
	m.finish()

	h := &history{rt: m.rt, acked: m.acked}
	last := must(admin.Pods.Create(ctx(m.t), &corev1rpc.CreatePodRequest{Object: m.pod("last", nil)}))(m.t)
	for ended := false; !ended; {
		for _, e := range must(pods.Recv())(m.t).Events {
			if e.Object.Metadata.Name == "last" {
				ended = true
				break
			}
			h.events = append(h.events, e)
		}
	}
	final := must(admin.Nodes.Create(ctx(m.t), &corev1rpc.CreateNodeRequest{Object: newNode(m.namespace)}))(m.t)
	for ended := false; !ended; {
		for _, e := range must(nodes.Recv())(m.t).Events {
			ended = ended || e.Object.Metadata.Name == final.Metadata.Name
			h.nodes = append(h.nodes, e)
		}
	}
	must(admin.Nodes.Delete(ctx(m.t), &metav1.DeleteRequest{Name: final.Metadata.Name}))(m.t)
	must(deletePod(m.t, admin, last, ptr(int64(0)), false))(m.t)
	h.check()
}

func (m *machine) pod(name string, op *operation) *corev1.Pod {
	p := newPod(name)
	p.Metadata.Namespace = m.namespace
	if op != nil {
		if op.hold {
			p.Metadata.Finalizers = []string{"example.com/hold"}
		}
		if op.grace != nil && *op.grace >= 0 {
			p.Spec.TerminationGracePeriodSeconds = op.grace
		}
	}
	return p
}

func (m *machine) client(by string) client {
	switch by {
	case "user":
		return m.admin()
	case "scheduler":
		return m.scheduler()
	case "podgc", "namespace":
		return m.controller(by)
	default:
		return m.agent(by)
	}
}

// look returns the pod as it is just now, which it may no longer be when it is acted upon.
func (m *machine) look(name string) *corev1.Pod {
	p, err := m.admin().Pods.Get(ctx(m.t), &metav1.GetRequest{Namespace: m.namespace, Name: name})
	if err != nil {
		return nil
	}
	m.mu.Lock()
	m.uids = append(m.uids, p.Metadata.Uid)
	m.rvs = append(m.rvs, p.Metadata.ResourceVersion)
	m.mu.Unlock()
	return p
}

func (m *machine) uid(op operation, p *corev1.Pod, n int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case op.uid == "stale" && len(m.uids) > 0:
		return m.uids[n%len(m.uids)]
	case op.uid == "current" && p != nil:
		return p.Metadata.Uid
	default:
		return ""
	}
}

// revision is the resourceVersion that a deletion wants to find, empty for any.
func (m *machine) revision(op operation, p *corev1.Pod, n int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case op.rv == "stale" && len(m.rvs) > 0:
		return m.rvs[n%len(m.rvs)]
	case op.rv == "current" && p != nil:
		return p.Metadata.ResourceVersion
	default:
		return ""
	}
}

// do tries an operation and records it when it is acknowledged.
func (m *machine) do(op operation, worker, n int) {
	d := done{operation: op, begun: m.clock.Now().Truncate(time.Second)}
	err := m.attempt(op, worker, n, &d)
	d.ended = m.clock.Now()
	if apierrors.Is(err, apierrors.InternalError) {
		m.rt.Errorf("%v: %v", op, err)
	}
	if err == nil && (d.uid != "" || d.rv != "") {
		m.mu.Lock()
		m.acked = append(m.acked, d)
		m.mu.Unlock()
	}
}

func (m *machine) attempt(op operation, worker, n int, d *done) error {
	by := m.client(op.by)
	switch op.kind {
	case "clock":
		m.clock.Step(time.Duration(n) * time.Second)
		return nil
	case "node-delete":
		_, err := m.admin().Nodes.Delete(ctx(m.t), &metav1.DeleteRequest{Name: op.node})
		return err
	case "node-register":
		_, err := m.agent(op.node).Nodes.Create(ctx(m.t), &corev1rpc.CreateNodeRequest{Object: newNode(op.node)})
		return err
	case "create":
		p, err := m.admin().Pods.Create(ctx(m.t), &corev1rpc.CreatePodRequest{Object: m.pod(op.pod, &op)})
		d.answer(p)
		return err
	}
	p := m.look(op.pod)
	uid := m.uid(op, p, n)
	switch op.kind {
	case "bind":
		d.uid = uid
		_, err := m.scheduler().Pods.Bind(ctx(m.t), &corev1rpc.BindPodRequest{Namespace: m.namespace, Name: op.pod,
			Object: &corev1.Binding{Metadata: &metav1.ObjectMeta{Uid: uid}, Target: &corev1.ObjectReference{Name: op.node}}})
		return err
	case "delete":
		return m.delete(by, op, d, p, uid, m.revision(op, p, n))
	case "phase":
		status := &corev1.PodStatus{Phase: op.phase}
		if op.by == "podgc" {
			status.Conditions = []*corev1.PodCondition{{Type: "DisruptionTarget", Status: "True", Reason: "DeletionByPodGC"}}
		}
		if op.by == "user" { // who would say with an update what the metadata is to be, too
			said := "{}"
			if uid != "" {
				said = fmt.Sprintf(`{"uid":%q}`, uid)
			}
			p, err := by.Pods.PatchStatus(ctx(m.t), &metav1.PatchRequest{Namespace: m.namespace, Name: op.pod,
				PatchType: "application/merge-patch+json",
				Patch:     fmt.Appendf(nil, `{"metadata":%s,"status":{"phase":%q}}`, said, op.phase)})
			d.answer(p)
			return err
		}
		p, err := by.Pods.UpdateStatus(ctx(m.t), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: m.namespace, Name: op.pod, Uid: uid}, Status: status}})
		d.answer(p)
		return err
	case "annotate":
		d.key = fmt.Sprintf("example.com/w%d-%d", worker, n)
		return m.patch(op, d, `{"metadata":{"annotations":{"`+d.key+`":"x"}}}`)
	case "update":
		if p == nil {
			return nil
		}
		d.key = fmt.Sprintf("example.com/w%d-%d", worker, n)
		next := clone(p)
		if next.Metadata.Annotations == nil {
			next.Metadata.Annotations = map[string]string{}
		}
		next.Metadata.Annotations[d.key] = "x"
		out, err := m.admin().Pods.Update(ctx(m.t), &corev1rpc.UpdatePodRequest{Object: next})
		d.answer(out)
		return err
	case "hold":
		return m.patch(op, d, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	case "release":
		return m.patch(op, d, `{"metadata":{"finalizers":null}}`)
	}
	panic("unknown operation " + op.kind)
}

// delete deletes the pod that was seen just now, with the preconditions that are not empty.
func (m *machine) delete(by client, op operation, d *done, seen *corev1.Pod, uid, rv string) error {
	d.wanted = rv
	opts := &metav1.DeleteOptions{GracePeriodSeconds: op.grace, Preconditions: &metav1.Preconditions{}}
	if uid != "" {
		opts.Preconditions.Uid = &uid
	}
	if rv != "" {
		opts.Preconditions.ResourceVersion = &rv
	}
	p, err := by.Pods.Delete(ctx(m.t), &metav1.DeleteRequest{Namespace: m.namespace, Name: op.pod, Options: opts})
	d.answer(p)
	d.gone = err == nil && p.Metadata.GetDeletionGracePeriodSeconds() == 0 && len(p.Metadata.Finalizers) == 0
	// Revisions only grow, so that one before that of the pod just seen has no pod any more. That nothing has changed is
	// for the history to show, in which an operation that was refused explains nothing.
	stale := rv != "" && revision(rv) < revision(seen.GetMetadata().GetResourceVersion())
	if stale && !apierrors.Is(err, apierrors.Conflict) && !apierrors.Is(err, apierrors.NotFound) {
		m.rt.Errorf("DEL-5: %v wanted revision %s of %v: %v", op, rv, seen, err)
	}
	return err
}

func (m *machine) patch(op operation, d *done, doc string) error {
	p, err := m.admin().Pods.Patch(ctx(m.t), &metav1.PatchRequest{Namespace: m.namespace, Name: op.pod,
		PatchType: "application/merge-patch+json", Patch: []byte(doc)})
	d.answer(p)
	d.gone = op.kind == "release" && err == nil && p.Metadata.DeletionTimestamp != nil &&
		p.Metadata.GetDeletionGracePeriodSeconds() == 0
	return err
}

func (d *done) answer(p *corev1.Pod) {
	d.uid, d.rv = p.GetMetadata().GetUid(), p.GetMetadata().GetResourceVersion()
}

// finish is the honest cluster: finalizers are released, nodes are there, everything is deleted, and agents
// complete what they are told to stop. No deletion may be left over (DEL-13). Nobody else writes any more, so that the
// revision that was seen is the one that is found.
func (m *machine) finish() {
	for _, n := range []string{"n1", "n2"} {
		m.do(operation{kind: "node-register", node: n}, 99, 0)
	}
	for _, name := range []string{"a", "b"} {
		m.do(operation{kind: "release", pod: name, by: "user"}, 99, 1)
		m.do(operation{kind: "delete", pod: name, by: "user", uid: "none", rv: "current"}, 99, 2)
		if p := m.look(name); p != nil && p.Spec.NodeName != "" {
			phase := "Succeeded"
			if terminal(p) { // a user may have said so
				phase = p.Status.Phase
			}
			m.do(operation{kind: "phase", pod: name, by: p.Spec.NodeName, phase: phase, uid: "current"}, 99, 3)
			m.do(operation{kind: "delete", pod: name, by: p.Spec.NodeName, grace: ptr(int64(0)), uid: "current", rv: "current"},
				99, 4)
		}
		if p := m.look(name); p != nil {
			m.rt.Errorf("a deletion that never ends: %v", p)
		}
	}
}

// graceOf is the period a pod's own spec asks for.
func graceOf(p *corev1.Pod) int64 { return p.GetSpec().GetTerminationGracePeriodSeconds() }

func timeOf(t *metav1.Time) time.Time { return value.GoTime(t) }
