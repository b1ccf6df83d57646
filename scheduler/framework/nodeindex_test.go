package framework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// apps is the index of a plugin: how many pods of each app there are on each node, by place and by name. It is told of
// every change once, and keeps what it is told.
type apps struct {
	names  []string
	counts []map[string]int
	byName map[string]map[string]int
	told   int
}

func newApps() NodeIndex { return &apps{byName: map[string]map[string]int{}} }

func (x *apps) Added(n *NodeInfo) {
	x.told++
	at, ok := n.Place()
	if !ok || at != len(x.names) {
		panic(fmt.Sprintf("%s was added at %d, %v, and not at %d", n.Name, at, ok, len(x.names)))
	}
	counts := map[string]int{}
	for _, p := range n.Pods() {
		counts[p.Pod.Metadata.Labels["app"]]++
	}
	x.names, x.counts, x.byName[n.Name] = append(x.names, n.Name), append(x.counts, counts), counts
}

func (x *apps) Changed(was, now *NodeInfo, went, came []*PodInfo) {
	x.told++
	a, _ := was.Place()
	b, _ := now.Place()
	if a != b || x.names[a] != was.Name || was.Name != now.Name {
		panic(fmt.Sprintf("%s at %d became %s at %d", was.Name, a, now.Name, b))
	}
	if stay := len(was.Pods()) - len(went); stay != len(now.Pods())-len(came) || stay < 0 {
		panic("pods came or went unseen")
	}
	for _, p := range went {
		x.counts[a][p.Pod.Metadata.Labels["app"]]--
	}
	for _, p := range came {
		x.counts[a][p.Pod.Metadata.Labels["app"]]++
	}
}

func (x *apps) Removed(n *NodeInfo) {
	x.told++
	at, _ := n.Place()
	last := len(x.names) - 1
	x.names[at], x.counts[at] = x.names[last], x.counts[last]
	x.names, x.counts = x.names[:last], x.counts[:last]
	delete(x.byName, n.Name)
}

// look says what a node is like, all that plugins read of it.
func look(n *NodeInfo) string {
	var pods []string
	for _, p := range n.Pods() {
		m := p.Pod.Metadata
		pods = append(pods, fmt.Sprintf("%s %v %v", p.UID, m.Labels, m.DeletionTimestamp != nil))
	}
	at, ok := n.Place()
	return fmt.Sprintln(n.Name, n.Node, at, ok, pods, n.Requested, n.Ports, n.Allocatable, len(n.Nominated))
}

// An index of a plugin is what one finds by counting, whenever it was made. The nodes that it, or any plugin, has seen
// stay what they were.
//
// spec: SCHED-1
func TestPluginIndexAgainstCounting(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := walk{s: NewSnapshot(), rng: rng}
	type key struct{ late bool }
	seen := map[*NodeInfo]string{}
	for step := range 3000 {
		w.step()
		if step < 500 || rng.IntN(3) == 0 {
			continue
		}
		for _, k := range []key{{false}, {true}}[:1+step/2000] {
			x := w.s.Index(k, newApps).(*apps)
			counted := map[string]int{}
			for i, n := range w.s.Nodes() {
				counted[n.Name] = i
				counts := map[string]int{}
				for _, p := range n.Pods() {
					counts[p.Pod.Metadata.Labels["app"]]++
				}
				for _, app := range []string{"x", "y"} {
					if a, b := x.counts[i][app], x.byName[n.Name][app]; a != counts[app] || b != counts[app] {
						t.Fatalf("step %d: %s has %v, the index says %d and %d of %s", step, n.Name, counts, a, b, app)
					}
				}
				if x.names[i] != n.Name {
					t.Fatalf("step %d: the index has %s in the place of %s", step, x.names[i], n.Name)
				}
				if at, ok := n.Place(); !ok || at != i || w.s.Node(n.Name) != n {
					t.Fatalf("step %d: %s is at %d, %v", step, n.Name, at, ok)
				}
			}
			if len(x.names) != len(counted) || len(x.byName) != len(counted) {
				t.Fatalf("step %d: the index has %d nodes of %d", step, len(x.names), len(counted))
			}
		}
		for _, zone := range []string{"1", "2", "3"} {
			var want []*NodeInfo
			for _, n := range w.s.Nodes() {
				if n.Node.Metadata.Labels["zone"] == zone {
					want = append(want, n)
				}
			}
			if got := w.s.NodesWith("zone", zone); !slices.Equal(got, want) {
				t.Fatalf("step %d: other nodes are in zone %s", step, zone)
			}
		}
		for _, n := range w.s.Nodes() {
			if _, known := seen[n]; !known {
				seen[n] = look(n)
			}
		}
		if step%100 == 0 {
			for n, was := range seen {
				if now := look(n); now != was {
					t.Fatalf("step %d: a node that was kept has changed from\n%sto\n%s", step, was, now)
				}
			}
		}
	}
	if len(seen) < 1000 {
		t.Errorf("only %d states of nodes were kept", len(seen))
	}
}

// An index is told of a change once, and of nothing but changes.
func TestPluginIndexIsKept(t *testing.T) {
	s := twoNodes()
	x := s.Index("a", newApps).(*apps)
	other := s.Index("b", newApps).(*apps)
	if x.told != 2 || other == x {
		t.Errorf("told %d times of two nodes", x.told)
	}
	s.Set("x", s.Node("x").WithPod(testPod("p", "")))
	s.Set("z", nil)
	s.Set("z", NewNodeInfo("z", &corev1.Node{}))
	s.Set("y", nil)
	if again := s.Index("a", newApps); again != NodeIndex(x) || x.told != 5 || other.told != 5 {
		t.Errorf("told %d and %d times of five changes", x.told, other.told)
	}
}

// More indexes than there is room for are right all the same.
func TestPluginIndexesAreBounded(t *testing.T) {
	s := twoNodes()
	for round := range 3 {
		for i := range 2 * maxPluginIndexes {
			x := s.Index(i, newApps).(*apps)
			used := s.Index(-1, newApps).(*apps)
			for _, n := range s.Nodes() {
				if at, _ := n.Place(); x.counts[at][""] != len(n.Pods()) || used.counts[at][""] != len(n.Pods()) {
					t.Fatalf("round %d: index %d has %v", round, i, x.counts)
				}
			}
			if used.told != 2+round*2*maxPluginIndexes+i {
				t.Fatalf("the one that is always in use was made anew: told %d times", used.told)
			}
			s.Set("x", s.Node("x").WithPod(testPod(fmt.Sprint(round, "/", i), "")))
		}
	}
	if len(s.byPlugin) != maxPluginIndexes || len(s.indexes) != maxPluginIndexes+len(NewSnapshot().indexes) {
		t.Errorf("%d indexes, %d are told", len(s.byPlugin), len(s.indexes))
	}
}

// faulty panics when it is told of a pod named bad.
type faulty struct{ NodeIndex }

func (x faulty) Changed(was, now *NodeInfo, went, came []*PodInfo) {
	for _, p := range came {
		if p.UID == "bad" {
			panic("a bad pod")
		}
	}
	x.NodeIndex.Changed(was, now, went, came)
}

// counting asks for its index in each decision.
type counting struct {
	spy
	made int
}

func (c *counting) PreFilter(_ *CycleState, _ *PodInfo, s *Snapshot) (*PreFilterResult, *Status) {
	s.Index(c, func() NodeIndex {
		c.made++
		return faulty{newApps()}
	})
	return nil, nil
}

// An index that panics fails one decision with the place where it did, and is right again in the next.
//
// spec: SCHED-1
func TestFaultyPluginIndex(t *testing.T) {
	c := &counting{spy: spy{name: "counting", log: new([]string), score: func(string) int64 { return 0 }}}
	p, err := NewProfile("test", 0, Enabled{Plugin: c})
	if err != nil {
		t.Fatal(err)
	}
	s := twoNodes()
	decide := func() error { return p.Schedule(&CycleState{}, testPod("a", ""), s, NewSearcher(1)).Err }
	if err := decide(); err != nil {
		t.Fatal(err)
	}
	s.Set("x", s.Node("x").WithPod(testPod("bad", "")))
	s.Set("x", s.Node("x").WithPod(testPod("good", ""))) // of which it is not told any more
	s.Set("y", nil)
	s.Set("z", NewNodeInfo("z", &corev1.Node{}))
	var panicked *PanicError
	if err := decide(); !errors.As(err, &panicked) || panicked.Error() != "a plugin panicked: a bad pod" ||
		!strings.Contains(string(panicked.Stack), "faulty") {
		t.Errorf("the decision failed with %v", err)
	}
	if err := decide(); err != nil || c.made != 2 {
		t.Errorf("after it was made %d times: %v", c.made, err)
	}
	x := s.byPlugin[c].NodeIndex.(faulty).NodeIndex.(*apps)
	if x.counts[0][""] != 2 || len(x.names) != 2 || len(s.indexes) != 1+len(NewSnapshot().indexes) {
		t.Errorf("the new one has %v of %v", x.counts, x.names)
	}
}

// late asks for the snapshot when it binds, or before.
type late struct {
	spy
	early bool
}

func (l *late) PreFlight(state *CycleState, _ *PodInfo, _ string) *Status {
	state.Snapshot().Nodes()
	return nil
}

func (l *late) PreBind(_ context.Context, state *CycleState, _ *PodInfo, _ string) *Status {
	if l.early {
		state.Snapshot().Nodes()
	}
	return nil
}

func (l *late) Bind(_ context.Context, state *CycleState, _ *PodInfo, _ string) *Status {
	state.Snapshot().Nodes()
	return nil
}

// Who asks for the snapshot when the decision is over is told so, and does not find another one by chance.
func TestSnapshotIsForTheDecision(t *testing.T) {
	l := &late{spy: spy{name: "late", log: new([]string), score: func(string) int64 { return 0 }}}
	p, err := NewProfile("test", 0, Enabled{Plugin: l})
	if err != nil {
		t.Fatal(err)
	}
	for _, l.early = range []bool{false, true} {
		var state CycleState
		pod := testPod("a", "")
		d := p.Schedule(&state, pod, twoNodes(), NewSearcher(1))
		if _, s := p.PreFlight(&state, pod, d.Node); !s.IsSuccess() {
			t.Fatal(s.Err())
		}
		s := p.PreBind(t.Context(), &state, pod, d.Node)
		if s.IsSuccess() == l.early {
			t.Errorf("PreBind: %v", s.Err())
		}
		if s.IsSuccess() {
			s = p.Bind(t.Context(), &state, pod, d.Node)
		}
		if !strings.Contains(s.Message(), "note what is needed of it in PreFlight or before") {
			t.Errorf("it failed with %q", s.Message())
		}
	}
}

// keeper is a plugin that keeps every node it sees.
type keeper struct {
	spy
	seen   map[*NodeInfo]string
	whatIf int
}

func (k *keeper) Filter(state *CycleState, _ *PodInfo, n *NodeInfo) *Status {
	if state.WhatIf() != nil {
		k.whatIf++
	}
	k.seen[n] = look(n)
	if state.WhatIf() == nil {
		return NewStatus(Unschedulable, k.name, "full")
	}
	return nil
}

// PostFilter tries each node without its pods, and with one after the other, and without some only.
func (k *keeper) PostFilter(state *CycleState, _ *PodInfo, s *Snapshot, _ *Diagnosis) (*Nomination, *Status) {
	for _, n := range s.Nodes() {
		t := state.Trial()
		for _, suffix := range []string{"", "/1"} {
			t.Begin(n, func(p *PodInfo) bool { return strings.HasSuffix(p.UID, suffix) })
			t.Fits()
			for _, p := range slices.Clone(t.Gone()) {
				t.Return(p)
			}
		}
	}
	return nil, NewStatus(Unschedulable, k.name)
}

// What a plugin of another program has seen stays true, also what a node would be like, and what was there before it
// was asked for the first time.
//
// spec: SCHED-1
func TestNodesStayTrue(t *testing.T) {
	k := &keeper{
		spy:  spy{name: "keeper", log: new([]string), score: func(string) int64 { return 0 }},
		seen: map[*NodeInfo]string{},
	}
	p, err := NewProfile("test", 0, Enabled{Plugin: k})
	if err != nil {
		t.Fatal(err)
	}
	s := NewSnapshot()
	for i := range 2 * blockSize {
		name := fmt.Sprint("n", i)
		n := NewNodeInfo(name, &corev1.Node{}).WithPod(testPod(name+"/1", "cpu=1", int32(1000+i))).
			WithPod(testPod(name+"/2", "cpu=2", int32(2000+i)))
		if i%5 == 0 {
			n = n.WithNominated([]*PodInfo{testPod(name+"/3", "cpu=3", 82)})
		}
		s.Set(name, n)
	}
	for round := range 4 {
		d := p.Schedule(&CycleState{}, testPod("a", ""), s, NewSearcher(1))
		if d.Err != nil || d.Node != "" {
			t.Fatalf("round %d: %q, %v", round, d.Node, d.Err)
		}
		for n, was := range k.seen {
			if now := look(n); now != was {
				t.Fatalf("round %d: a node has changed from\n%sto\n%s", round, was, now)
			}
		}
		for i := range 2 * blockSize {
			switch name := fmt.Sprint("n", i); {
			case i%7 == round:
				s.Set(name, nil)
			case s.Node(name) == nil:
				s.Set(name, NewNodeInfo(name, &corev1.Node{}))
			default:
				s.Set(name, s.Node(name).WithPod(testPod(fmt.Sprint(name, round), "cpu=4", 83)))
			}
		}
	}
	if k.whatIf < 1000 {
		t.Errorf("only %d looks at what nodes would be like", k.whatIf)
	}
}
