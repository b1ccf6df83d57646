package garbagecollector_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/watchcache"
	"monoplane.dev/controllers/garbagecollector/graph"
	"monoplane.dev/object"
)

var onlySeed = flag.Int("seed", -1, "the one history to look at")

// Whatever users, failing calls, lost watches, restarts and a second collector do at the same time: no collector ever
// deletes an object of which an owner is there, nor one that was to be orphaned, and in the end nothing is left whose
// owners are all gone, no reference to what is gone beside one to what is there, and nobody who waits. spec: OBJ-12
func TestHistories(t *testing.T) {
	first, last := 0, 20
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	var all tally
	for seed := first; seed < last; seed++ {
		synctest.Test(t, func(t *testing.T) {
			h := &history{world: newWorld(t), rng: rand.New(rand.NewPCG(uint64(seed), 5)), //nolint:gosec // not negative
				deleted: map[string]bool{}}
			h.run()
			all.add(h.judge())
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("seeds %d..%d: %+v", first, last-1, all)
	if *onlySeed < 0 && (all.collected < 200 || all.orphaned < 40 || all.foreground < 40 || all.left < 100) {
		t.Errorf("too little has happened: %+v", all)
	}
}

// tally counts what has happened.
type tally struct{ created, collected, orphaned, foreground, left int }

func (a *tally) add(b tally) {
	a.created += b.created
	a.collected += b.collected
	a.orphaned += b.orphaned
	a.foreground += b.foreground
	a.left += b.left
}

type history struct {
	*world

	mu  sync.Mutex
	rng *rand.Rand
	// made is every object that was ever made; deleted is, by uid, what users have asked to delete.
	made    []object.Object
	deleted map[string]bool
	// seen is all that has changed.
	seen []object.Event
}

func (h *history) n(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

var historyKinds = []*object.Kind{corev1.ConfigMapKind, corev1.SecretKind, corev1.PodKind, corev1.NodeKind}

// record notes every change of the kinds, whatever happens to other watches.
func (h *history) record() (stop func()) {
	var group sync.WaitGroup
	var all []*watchcache.Watcher
	for _, kind := range historyKinds {
		w, err := h.server.Store.Watch(context.Background(), kind, store.WatchOptions{SendInitialEvents: true})
		h.must(err)
		all = append(all, w)
		group.Go(func() {
			for {
				events, err := w.Next(context.Background())
				if errors.Is(err, watchcache.ErrStopped) {
					return
				}
				if err != nil {
					h.Error(err)
					return
				}
				h.mu.Lock()
				h.seen = append(h.seen, events...)
				h.mu.Unlock()
			}
		})
	}
	return func() {
		synctest.Wait()
		for _, w := range all {
			w.Stop()
		}
		group.Wait()
	}
}

func (h *history) run() {
	defer h.record()()
	collectors := []func(){h.start(), nil}
	h.server.React(func(_ context.Context, method string, _ any) error {
		switch h.n(15) {
		case 0:
			return apierrors.New(apierrors.ServiceUnavailable, "chaos in %s", method)
		case 1:
			time.Sleep(time.Duration(h.n(300)) * time.Millisecond) // virtual
		}
		return nil
	})
	h.server.After(func(_ context.Context, method string, _, _ any) error {
		if h.n(30) == 0 {
			return apierrors.New(apierrors.ServiceUnavailable, "the answer of %s is lost", method)
		}
		return nil
	})
	for range 150 {
		h.step()
		if h.n(3) == 0 {
			time.Sleep(time.Duration(h.n(200)) * time.Millisecond) // virtual
		}
		switch h.n(40) {
		case 0:
			h.server.Cut()
		case 1:
			h.server.Expire()
		case 2:
			i := h.n(2)
			if stop := collectors[i]; stop != nil {
				stop()
				collectors[i] = nil
			} else {
				collectors[i] = h.begin()
			}
		}
	}
	h.server.React(nil)
	h.server.After(nil)
	for i, stop := range collectors {
		if i == 0 && stop == nil {
			collectors[i] = h.begin()
		}
	}
	synctest.Wait()
	for _, o := range h.appeared() { // nobody else holds anything any more
		if m := h.get(o); slices.Contains(m.GetFinalizers(), hold) {
			h.setFinalizers(o, slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return f == hold }))
		}
	}
	time.Sleep(40 * time.Minute) // virtual: the longest back-off and more
	synctest.Wait()
	for _, stop := range collectors {
		if stop != nil {
			stop()
		}
	}
}

const hold = "example.com/hold"

// appeared returns every object that there was, also those of which whoever made them was not told.
func (h *history) appeared() []object.Object {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []object.Object
	for _, e := range h.seen {
		if e.Type == object.Added {
			all = append(all, e.Object)
		}
	}
	return all
}

func (h *history) setFinalizers(o object.Object, finalizers []string) {
	doc := `{"metadata":{"finalizers":[`
	for i, f := range finalizers {
		if i > 0 {
			doc += ","
		}
		doc += strconv.Quote(f)
	}
	_, kind := o.TypeMeta()
	_, _ = h.kinds[kind].Patch(context.Background(), &metav1.PatchRequest{
		Namespace: o.GetMetadata().GetNamespace(), Name: o.GetMetadata().GetName(),
		PatchType: "application/merge-patch+json", Patch: []byte(doc + "]}}")})
}

// references are to what is or was there, mostly as it is.
func (h *history) references() []*metav1.OwnerReference {
	var refs []*metav1.OwnerReference
	for range h.n(3) {
		if len(h.made) == 0 {
			break
		}
		o := h.made[len(h.made)-1-h.n(min(12, len(h.made)))]
		r := ref(o)
		if h.n(2) == 0 {
			yes := true
			r.BlockOwnerDeletion = &yes
		}
		switch h.n(20) {
		case 0:
			r.Uid = "another"
		case 1:
			r.Kind = "Lease"
			r.ApiVersion = "coordination.k8s.io/v1"
		}
		if !slices.ContainsFunc(refs, func(x *metav1.OwnerReference) bool { return x.Uid == r.Uid }) {
			refs = append(refs, r)
		}
	}
	return refs
}

// step is what a user does. Its calls may fail.
func (h *history) step() {
	ctx := context.Background()
	var o object.Object
	if len(h.made) > 0 {
		o = h.made[len(h.made)-1-h.n(min(12, len(h.made)))]
	}
	switch what := h.n(10); {
	case what < 5 || o == nil:
		m := &metav1.ObjectMeta{Namespace: []string{"ns", "ns", "ns", "other"}[h.n(4)], Name: fmt.Sprint("o", h.n(8)),
			OwnerReferences: h.references()}
		if h.n(6) == 0 {
			m.Finalizers = []string{hold}
		}
		var made object.Object
		var err error
		switch h.n(8) {
		case 0, 1, 2:
			made, err = h.c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{Metadata: m}})
		case 3, 4:
			made, err = h.c.Secrets.Create(ctx, &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{Metadata: m}})
		case 5, 6:
			made, err = h.c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Object: &corev1.Pod{Metadata: m,
				Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "host"}}}}})
		default:
			m.Namespace = ""
			made, err = h.c.Nodes.Create(ctx, &corev1rpc.CreateNodeRequest{Object: &corev1.Node{Metadata: m}})
		}
		if err == nil {
			h.made = append(h.made, made)
		}
	case what < 8:
		policy := []string{"Background", "Background", "Foreground", "Orphan"}[h.n(4)]
		m := o.GetMetadata()
		_, kind := o.TypeMeta()
		uid := m.GetUid()
		now := h.get2(o)
		// Who has begun to orphan does not change their mind, so that it can be told in the end who was to stay.
		begun := now.GetDeletionTimestamp() != nil
		if now == nil || begun && (policy != "Background" || slices.Contains(now.Finalizers, "orphan")) {
			return
		}
		h.deleted[uid] = true
		_ = h.kinds[kind].Delete(ctx, m.GetNamespace(), m.GetName(), &metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{Uid: &uid}})
	case what == 8:
		if _, ok := o.(*corev1.ConfigMap); !ok {
			return
		}
		now, err := h.c.ConfigMaps.Get(ctx, &metav1.GetRequest{Namespace: o.GetMetadata().GetNamespace(),
			Name: o.GetMetadata().GetName()})
		if err != nil || now.Metadata.Uid != o.GetMetadata().GetUid() {
			return
		}
		now = object.Clone(now)
		now.Metadata.OwnerReferences = h.references()
		_, _ = h.c.ConfigMaps.Update(ctx, &corev1rpc.UpdateConfigMapRequest{Object: now})
	default:
		if m := h.get2(o); slices.Contains(m.GetFinalizers(), hold) {
			h.setFinalizers(o, slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return f == hold }))
		}
	}
}

// get2 is get for a server that may fail.
func (h *history) get2(o object.Object) *metav1.ObjectMeta {
	_, kind := o.TypeMeta()
	now, err := h.kinds[kind].Get(context.Background(), o.GetMetadata().GetNamespace(), o.GetMetadata().GetName())
	if err != nil || now.GetMetadata().GetUid() != o.GetMetadata().GetUid() {
		return nil
	}
	return now.GetMetadata()
}

// past is the objects at a revision, by uid, and what has happened to them.
type past struct {
	live map[string]object.Object
	// since is from when on an object has named an owner, by both uids.
	since map[[2]string]int64
	// orphaned is when an owner began to orphan its dependents.
	orphaned map[string]int64
}

// owner returns the object that a reference of o is to, nil for none.
func (p *past) owner(o object.Object, r *metav1.OwnerReference) object.Object {
	owner, ok := p.live[r.GetUid()]
	if !ok {
		return nil
	}
	apiVersion, kind := owner.TypeMeta()
	m := owner.GetMetadata()
	if apiVersion != r.GetApiVersion() || kind != r.GetKind() || m.GetName() != r.GetName() ||
		m.GetNamespace() != "" && m.GetNamespace() != o.GetMetadata().GetNamespace() {
		return nil
	}
	return owner
}

// lost says whether o names an owner of a kind in namespaces, and lives in none itself.
func lost(o object.Object) bool {
	return o.GetMetadata().GetNamespace() == "" && slices.ContainsFunc(o.GetMetadata().GetOwnerReferences(),
		func(r *metav1.OwnerReference) bool { return r.GetKind() != "Node" })
}

// held says whether something that nobody can judge blocks the deletion of o, by way of others or not. Those in seen
// have been asked. What blocks is a reference with o's uid from where o can be an owner, whatever else it says.
func (p *past) held(o object.Object, seen map[object.Object]bool) bool {
	seen[o] = true
	m := o.GetMetadata()
	for _, d := range p.live {
		if seen[d] || m.GetNamespace() != "" && m.GetNamespace() != d.GetMetadata().GetNamespace() {
			continue
		}
		for _, r := range d.GetMetadata().GetOwnerReferences() {
			if r.GetBlockOwnerDeletion() && r.GetUid() == m.GetUid() && (lost(d) || p.held(d, seen)) {
				return true
			}
		}
	}
	return false
}

// judge goes through all that has happened, in the order of the revisions.
func (h *history) judge() tally {
	h.Helper()
	revision := func(e object.Event) int64 {
		rev, err := strconv.ParseInt(e.Object.GetMetadata().GetResourceVersion(), 10, 64)
		h.must(err)
		return rev
	}
	slices.SortStableFunc(h.seen, func(a, b object.Event) int { return cmp.Compare(revision(a), revision(b)) })
	p := &past{live: map[string]object.Object{}, since: map[[2]string]int64{}, orphaned: map[string]int64{}}
	n := tally{created: len(h.made)}
	for _, e := range h.seen {
		m, rev := e.Object.GetMetadata(), revision(e)
		uid := m.GetUid()
		before := p.live[uid]
		if begins := m.GetDeletionTimestamp() != nil || e.Type == object.Deleted; begins && before != nil &&
			before.GetMetadata().GetDeletionTimestamp() == nil && !h.deleted[uid] {
			n.collected++
			h.collected(p, before, rev)
		}
		if e.Type == object.Deleted {
			delete(p.live, uid)
			continue
		}
		p.live[uid] = e.Object
		if state := graph.StateOf(m); before != nil && graph.StateOf(before.GetMetadata()) != state {
			switch state {
			case graph.Orphaning:
				p.orphaned[uid] = rev
				n.orphaned++
			case graph.Foreground:
				n.foreground++
			case graph.Alive, graph.Deleting:
			}
		}
		for _, r := range m.GetOwnerReferences() {
			if key := [2]string{uid, r.GetUid()}; p.since[key] == 0 {
				p.since[key] = rev
			}
		}
	}
	for _, o := range p.live {
		m := o.GetMetadata()
		n.left++
		if state := graph.StateOf(m); (state == graph.Foreground || state == graph.Orphaning) &&
			!p.held(o, map[object.Object]bool{}) {
			h.Errorf("%s still waits: %v", m.GetName(), m)
		}
		if m.GetDeletionTimestamp() != nil || lost(o) {
			continue
		}
		for _, r := range m.GetOwnerReferences() {
			if p.owner(o, r) == nil {
				h.Errorf("%s/%s still names %v, which is gone: %v", m.GetNamespace(), m.GetName(), r, m)
			}
		}
	}
	return n
}

// collected checks that the collector might delete o.
func (h *history) collected(p *past, o object.Object, revision int64) {
	h.Helper()
	m := o.GetMetadata()
	if len(m.GetOwnerReferences()) == 0 || lost(o) {
		h.Errorf("at %d %s/%s was collected: %v", revision, m.GetNamespace(), m.GetName(), m)
	}
	for _, r := range m.GetOwnerReferences() {
		if owner := p.owner(o, r); owner != nil && owner.GetMetadata().GetDeletionTimestamp() == nil {
			h.Errorf("at %d %s/%s was collected, whose owner is there: %v", revision, m.GetNamespace(), m.GetName(),
				owner.GetMetadata())
		}
		if marked := p.orphaned[r.GetUid()]; marked > 0 && p.since[[2]string{m.GetUid(), r.GetUid()}] < marked &&
			!slices.ContainsFunc(m.GetOwnerReferences(), func(x *metav1.OwnerReference) bool {
				return x.GetUid() != r.GetUid() && p.orphaned[x.GetUid()] == 0
			}) && h.fits(r, o) {
			h.Errorf("at %d %s/%s was collected, which was to be orphaned at %d: %v", revision, m.GetNamespace(),
				m.GetName(), marked, m)
		}
	}
}

// fits says whether a reference of o is what its owner is or was.
func (h *history) fits(r *metav1.OwnerReference, o object.Object) bool {
	p := &past{live: map[string]object.Object{}}
	for _, x := range h.made {
		p.live[x.GetMetadata().GetUid()] = x
	}
	return p.owner(o, r) != nil
}

// begin starts a collector of which the first calls may fail.
func (h *history) begin() (stop func()) { return h.startWith(false) }
