package watchcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// model is the cache done in the simplest way: the whole history in a slice.
type model struct {
	history  []modelChange
	revision int64
}

type modelChange struct {
	revision  int64
	prev, cur *corev1.Pod
}

// at returns the objects at a revision, by key.
func (m *model) at(revision int64) map[string]*corev1.Pod {
	state := map[string]*corev1.Pod{}
	for _, c := range m.history {
		if c.revision > revision {
			break
		}
		if c.cur == nil {
			delete(state, keyOf(c.prev))
		} else {
			state[keyOf(c.cur)] = c.cur
		}
	}
	return state
}

// list returns what a list at a revision shows.
func (m *model) list(revision int64, sel modelSelection) []string {
	var out []string
	for key, p := range m.at(revision) {
		if sel.match(p) {
			out = append(out, key+"@"+p.Metadata.ResourceVersion)
		}
	}
	sort.Slice(out, func(i, j int) bool { return keyPart(out[i]) < keyPart(out[j]) })
	return out
}

func keyPart(s string) string { return s[:slices.Index([]byte(s), '@')] }

// events returns what a watcher sees of the changes after a revision.
func (m *model) events(after int64, sel modelSelection) []string {
	var out []string
	for i, c := range m.history {
		if c.revision <= after {
			continue
		}
		seen := c.revision
		if i+1 < len(m.history) && m.history[i+1].revision == c.revision {
			seen-- // not all of the revision
		}
		was, is := c.prev != nil && sel.match(c.prev), c.cur != nil && sel.match(c.cur)
		switch {
		case was && is:
			out = append(out, fmt.Sprint("MODIFIED ", show(c.cur), "@", c.revision))
		case is:
			out = append(out, fmt.Sprint("ADDED ", show(c.cur), "@", c.revision))
		case was:
			out = append(out, fmt.Sprint("DELETED ", show(c.prev), "@", seen))
		}
	}
	return out
}

// split says whether a revision has several changes.
func (m *model) split(revision int64) bool {
	n := 0
	for _, c := range m.history {
		if c.revision == revision {
			n++
		}
	}
	return n > 1
}

// show includes what selectors look at, so that the state in an event is checked, too.
func show(p *corev1.Pod) string {
	return fmt.Sprintf("%s %s %s", keyOf(p), p.GetSpec().GetNodeName(), p.GetMetadata().GetLabels()["l"])
}

func keyOf(p *corev1.Pod) string {
	return p.GetMetadata().GetNamespace() + "/" + p.GetMetadata().GetName()
}

type modelSelection struct{ namespace, name, node, label string }

func (s modelSelection) match(p *corev1.Pod) bool {
	return (s.namespace == "" || p.Metadata.Namespace == s.namespace) && (s.name == "" || p.Metadata.Name == s.name) &&
		(s.node == "" || p.Spec.NodeName == s.node) && (s.label == "" || p.Metadata.Labels["l"] == s.label)
}

func (s modelSelection) real() Selection {
	sel := Selection{Namespace: s.namespace}
	if s.label != "" {
		sel.Label = labels.SelectorFromSet(labels.Set{"l": s.label})
	}
	set := fields.Set{}
	if s.name != "" {
		set["metadata.name"] = s.name
	}
	if s.node != "" {
		set["spec.nodeName"] = s.node
	}
	if len(set) > 0 {
		sel.Field = fields.SelectorFromSet(set)
	}
	return sel
}

// modelWatcher is a watcher with what it has seen and what it should see.
type modelWatcher struct {
	w     *Watcher
	from  int64
	sel   modelSelection
	start []string // the initial events
	seen  []string
	last  int64 // revision of the last one seen
}

func podField(o object.Object, name string) (string, bool) {
	if name != "spec.nodeName" {
		return "", false
	}
	return o.(*corev1.Pod).GetSpec().GetNodeName(), true
}

type machine struct {
	m        model
	c        *Cache
	p        *Progress
	watchers []*modelWatcher
}

var (
	anyNamespace = rapid.SampledFrom([]string{"a", "a-b", "b"})
	anyName      = rapid.SampledFrom([]string{"1", "2", "3", "10"})
	anyNode      = rapid.SampledFrom([]string{"", "n1", "n2"})
	anyLabel     = rapid.SampledFrom([]string{"", "x", "y"})
	anySelection = rapid.Custom(func(t *rapid.T) modelSelection {
		// Most have few requirements.
		pick := rapid.IntRange(0, 15).Draw(t, "selectors")
		var s modelSelection
		if pick&1 > 0 {
			s.namespace = anyNamespace.Draw(t, "namespace")
		}
		if pick&2 > 0 && pick&8 > 0 {
			s.name = anyName.Draw(t, "name")
		}
		if pick&4 > 0 {
			s.node = anyNode.Draw(t, "node")
		}
		if pick&8 > 0 {
			s.label = anyLabel.Draw(t, "label")
		}
		return s
	})
)

func newMachine(history int) *machine {
	p := NewProgress()
	x := &machine{p: p, c: New(Config{
		Kind: corev1.PodKind, Field: podField, Indexes: []string{"spec.nodeName"}, Progress: p, HistoryEvents: history,
	})}
	x.m.revision = 5
	x.c.Replace(nil, 5, nil)
	p.Set(5)
	return x
}

// Write makes some changes and applies them at once.
func (x *machine) Write(t *rapid.T) {
	var changes []Change
	for range rapid.IntRange(1, 5).Draw(t, "changes") {
		x.m.revision += rapid.Int64Range(1, 3).Draw(t, "step") // other kinds have revisions, too
		p := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{
				Namespace: anyNamespace.Draw(t, "namespace"), Name: anyName.Draw(t, "name"),
				ResourceVersion: strconv.FormatInt(x.m.revision, 10), Labels: map[string]string{"l": anyLabel.Draw(t, "label")},
			},
			Spec: &corev1.PodSpec{NodeName: anyNode.Draw(t, "node")},
		}
		prev := x.m.at(x.m.revision)[keyOf(p)]
		ch := Change{Key: keyOf(p), Revision: x.m.revision}
		mc := modelChange{revision: x.m.revision, prev: prev}
		if prev == nil || rapid.IntRange(0, 3).Draw(t, "delete") > 0 {
			ch.Item = &Item{Key: keyOf(p), Object: p, Revision: x.m.revision, Size: 100}
			mc.cur = p
		}
		changes = append(changes, ch)
		x.m.history = append(x.m.history, mc)
	}
	x.c.Apply(changes)
	x.m.revision += rapid.Int64Range(0, 2).Draw(t, "ahead")
	x.p.Set(x.m.revision)
}

// Sweep deletes some objects at one revision.
func (x *machine) Sweep(t *rapid.T) {
	x.m.revision += rapid.Int64Range(1, 3).Draw(t, "step")
	state := x.m.at(x.m.revision)
	var changes []Change
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if rapid.Bool().Draw(t, "delete") {
			changes = append(changes, Change{Key: key, Revision: x.m.revision})
			x.m.history = append(x.m.history, modelChange{revision: x.m.revision, prev: state[key]})
		}
	}
	x.c.Apply(changes)
	x.p.Set(x.m.revision)
}

// List compares a list, in pages of some size, now or at a revision.
func (x *machine) List(t *rapid.T) {
	sel := anySelection.Draw(t, "selection")
	exact := int64(0)
	if rapid.Bool().Draw(t, "exact") {
		exact = rapid.Int64Range(5, x.m.revision).Draw(t, "revision")
	}
	opts := ListOptions{Selection: sel.real(), Exact: exact, Limit: rapid.Int64Range(0, 4).Draw(t, "limit")}
	var got []string
	for {
		page, ok, err := x.c.List(opts)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return // no longer in memory
		}
		for _, o := range page.Objects {
			got = append(got, keyOf(o.(*corev1.Pod))+"@"+o.GetMetadata().GetResourceVersion())
		}
		if exact == 0 {
			exact = page.Revision
			if exact != x.m.revision {
				t.Fatalf("a list at %d, now is %d", exact, x.m.revision)
			}
		}
		if page.Revision != exact {
			t.Fatalf("a page at %d of a list at %d", page.Revision, exact)
		}
		want := x.m.list(exact, sel)
		if page.Remaining >= 0 && int(page.Remaining) != len(want)-len(got) {
			t.Fatalf("%d remain, says the page; %d do", page.Remaining, len(want)-len(got))
		}
		if page.Last == "" {
			if !slices.Equal(got, want) {
				t.Fatalf("at %d listed %v, want %v", exact, got, want)
			}
			return
		}
		opts.Exact, opts.After = exact, page.Last
		if rapid.Bool().Draw(t, "write between pages") {
			x.Write(t)
		}
	}
}

// Watch starts a watcher anywhere in the history.
func (x *machine) Watch(t *rapid.T) {
	w := &modelWatcher{sel: anySelection.Draw(t, "selection")}
	opts := WatchOptions{Selection: w.sel.real()}
	if opts.Initial = rapid.Bool().Draw(t, "initial"); opts.Initial {
		w.from = x.m.revision
		for _, s := range x.m.list(w.from, w.sel) {
			w.start = append(w.start, "ADDED "+show(x.m.at(w.from)[keyPart(s)])+s[len(keyPart(s)):])
		}
	} else {
		w.from = rapid.Int64Range(5, x.m.revision).Draw(t, "from")
		opts.From = w.from
	}
	var err error
	w.w, err = x.c.Watch(opts)
	if err != nil {
		if apierrors.Is(err, apierrors.Expired) && (w.from < x.c.since || x.m.split(w.from+1)) {
			return
		}
		t.Fatal(err)
	}
	x.watchers = append(x.watchers, w)
}

// Read lets a watcher read all there is.
func (x *machine) Read(t *rapid.T) {
	if len(x.watchers) == 0 {
		t.Skip("no watchers")
	}
	i := rapid.IntRange(0, len(x.watchers)-1).Draw(t, "watcher")
	w := x.watchers[i]
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		events, err := w.w.Next(ctx)
		if errors.Is(err, context.Canceled) {
			break
		}
		if apierrors.Is(err, apierrors.Expired) && w.w.pos < x.c.log.start {
			x.watchers = slices.Delete(x.watchers, i, i+1)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			p := e.Object.(*corev1.Pod)
			w.seen = append(w.seen, fmt.Sprintf("%s %s@%s", e.Type, show(p), p.Metadata.ResourceVersion))
			w.last, _ = strconv.ParseInt(p.Metadata.ResourceVersion, 10, 64)
		}
	}
	if want := append(slices.Clone(w.start), x.m.events(w.from, w.sel)...); !slices.Equal(w.seen, want) {
		t.Fatalf("watcher of %+v from %d saw\n%q, want\n%q", w.sel, w.from, w.seen, want)
	}
}

// Resume breaks a watcher off among the events of a batch and goes on from the last it has seen.
func (x *machine) Resume(t *rapid.T) {
	if len(x.watchers) == 0 {
		t.Skip("no watchers")
	}
	i := rapid.IntRange(0, len(x.watchers)-1).Draw(t, "watcher")
	w := x.watchers[i]
	if len(w.seen) < len(w.start) {
		t.Skip("initial events have no order to resume in")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	events, _ := w.w.Next(ctx)
	w.w.Stop()
	for _, e := range events[:rapid.IntRange(0, len(events)).Draw(t, "seen")] {
		p := e.Object.(*corev1.Pod)
		w.seen = append(w.seen, fmt.Sprintf("%s %s@%s", e.Type, show(p), p.Metadata.ResourceVersion))
		w.last, _ = strconv.ParseInt(p.Metadata.ResourceVersion, 10, 64)
	}
	from := max(w.from, w.last)
	var err error
	w.w, err = x.c.Watch(WatchOptions{Selection: w.sel.real(), From: from})
	if err != nil {
		if !apierrors.Is(err, apierrors.Expired) || from >= x.c.since && !x.m.split(from+1) {
			t.Fatal(err)
		}
		x.watchers = slices.Delete(x.watchers, i, i+1)
	}
}

// Stop ends a watcher.
func (x *machine) Stop(t *rapid.T) {
	if len(x.watchers) == 0 {
		t.Skip("no watchers")
	}
	i := rapid.IntRange(0, len(x.watchers)-1).Draw(t, "watcher")
	x.watchers[i].w.Stop()
	x.watchers = slices.Delete(x.watchers, i, i+1)
}

// Check holds after every step.
func (x *machine) Check(t *rapid.T) {
	refs := 0
	for _, topic := range x.c.topics {
		if topic.refs <= 0 {
			t.Fatal("a topic that nobody reads")
		}
		refs += topic.refs
	}
	if refs += x.c.log.refs; refs != x.c.watchers {
		t.Fatalf("%d references, %d watchers", refs, x.c.watchers)
	}
	for key, p := range x.m.at(x.m.revision) {
		if item := x.c.Get(key); item == nil || item.Object != object.Object(p) {
			t.Fatalf("%s is %v, want %v", key, item, p)
		}
	}
	if n := len(x.m.at(x.m.revision)); x.c.Len() != n || x.c.indexes[0].Len() != n {
		t.Fatalf("%d objects, %d in the index, want %d", x.c.Len(), x.c.indexes[0].Len(), n)
	}
}

// spec: OBJ-6, OBJ-7
func TestModel(t *testing.T) {
	for _, history := range []int{20_000, 10} {
		t.Run(fmt.Sprint("history ", history), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				x := newMachine(history)
				t.Repeat(map[string]func(*rapid.T){
					"": x.Check, "Write": x.Write, "Sweep": x.Sweep, "Resume": x.Resume, "List": x.List, "Watch": x.Watch,
					"Read": x.Read, "Stop": x.Stop,
				})
			})
		})
	}
}
