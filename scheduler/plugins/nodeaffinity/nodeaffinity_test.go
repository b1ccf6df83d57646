package nodeaffinity

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/scheduler/framework"
)

// requirements reads "key operator value,value; ...".
func requirements(text string) []*corev1.NodeSelectorRequirement {
	var list []*corev1.NodeSelectorRequirement
	for part := range strings.SplitSeq(text, ";") {
		w := strings.Fields(part)
		if len(w) == 0 {
			continue
		}
		r := &corev1.NodeSelectorRequirement{Key: w[0], Operator: w[1]}
		if len(w) > 2 {
			r.Values = strings.Split(w[2], ",")
		}
		list = append(list, r)
	}
	return list
}

// nodeTerm reads "requirements | requirements on fields".
func nodeTerm(text string) *corev1.NodeSelectorTerm {
	labels, fields, _ := strings.Cut(text, "|")
	return &corev1.NodeSelectorTerm{MatchExpressions: requirements(labels), MatchFields: requirements(fields)}
}

func selector(list ...string) *corev1.NodeSelector {
	s := &corev1.NodeSelector{}
	for _, t := range list {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, nodeTerm(t))
	}
	return s
}

func requiring(list ...string) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector(list...)}
}

// preferring reads "weight: term".
func preferring(list ...string) *corev1.NodeAffinity {
	a := &corev1.NodeAffinity{}
	for _, text := range list {
		var w int32
		weight, t, _ := strings.Cut(text, ":")
		if _, err := fmt.Sscan(weight, &w); err != nil {
			panic(err)
		}
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			&corev1.PreferredSchedulingTerm{Weight: w, Preference: nodeTerm(t)})
	}
	return a
}

func podWith(a *corev1.NodeAffinity, nodeSelector map[string]string) *framework.PodInfo {
	spec := &corev1.PodSpec{NodeSelector: nodeSelector}
	if a != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: a}
	}
	return framework.NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p"}, Spec: spec})
}

// node reads "name key=value key=value".
func node(text string) *framework.NodeInfo {
	w := strings.Fields(text)
	m := &metav1.ObjectMeta{Name: w[0], Labels: map[string]string{}}
	for _, kv := range w[1:] {
		k, v, _ := strings.Cut(kv, "=")
		m.Labels[k] = v
	}
	return framework.NewNodeInfo(w[0], &corev1.Node{Metadata: m})
}

func plugin(t testing.TB, added *corev1.NodeAffinity) *Plugin {
	t.Helper()
	p, err := New(Args{AddedAffinity: added})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func matches(pod *framework.PodInfo, n *framework.NodeInfo) bool {
	return nodeselector.OfPod(pod.Pod.GetSpec()).Matches(n.Node)
}

// spec: SCHED-4
func TestRequirements(t *testing.T) {
	const n = "n1 disk=ssd rank=5 empty= words=five"
	for _, tc := range []struct {
		term string
		want bool
	}{
		{"disk In ssd", true}, {"disk In hdd,ssd", true}, {"disk In hdd", false}, {"none In ssd", false}, {"disk In", false},
		{"disk NotIn hdd", true}, {"disk NotIn hdd,ssd", false}, {"none NotIn ssd", true}, {"disk NotIn", false},
		{"disk Exists", true}, {"empty Exists", true}, {"none Exists", false}, {"disk Exists ssd", false},
		{"none DoesNotExist", true}, {"disk DoesNotExist", false}, {"empty DoesNotExist", false},
		{"none DoesNotExist ssd", false},
		{"rank Gt 4", true}, {"rank Gt 5", false}, {"rank Gt -1", true}, {"none Gt 0", false}, {"words Gt 0", false},
		{"empty Gt 0", false},
		{"rank Gt", false}, {"rank Gt four", false}, {"rank Gt 1,2", false}, {"rank Gt 4.5", false},
		{"rank Gt 9223372036854775808", false},
		{"rank Lt 6", true}, {"rank Lt 5", false}, {"rank Lt -1", false}, {"none Lt 9", false}, {"words Lt 9", false},
		{"empty Lt 9", false},
		{"rank Lt", false}, {"rank Lt six", false}, {"rank Lt 6,7", false}, {"rank Lt -9223372036854775809", false},
		{"disk Like ssd", false},
		{"disk In ssd; rank Gt 4", true}, {"disk In ssd; rank Gt 5", false}, {"disk In ssd; rank Gt five", false},
		{"| metadata.name In n1", true}, {"| metadata.name In n2", false}, {"| metadata.name NotIn n2", true},
		{"| metadata.name NotIn n1", false},
		{"disk In ssd | metadata.name In n1", true}, {"disk In hdd | metadata.name In n1", false},
		{"| metadata.name Exists", false}, {"| metadata.name Gt 1", false}, {"| spec.unschedulable NotIn true", false},
		{"", false}, // a term without requirements matches nothing
	} {
		if got := matches(podWith(requiring(tc.term), nil), node(n)); got != tc.want {
			t.Errorf("%q: %v", tc.term, got)
		}
		// Another term that matches makes up for any other.
		if !matches(podWith(requiring(tc.term, "disk Exists"), nil), node(n)) {
			t.Errorf("%q or another: no match", tc.term)
		}
	}
	if matches(podWith(requiring(), nil), node(n)) {
		t.Error("no term at all matches")
	}
	for want, pods := range map[bool][]*framework.PodInfo{
		true:  {podWith(nil, map[string]string{"a": ""}), podWith(requiring(), nil), podWith(requiring("a Exists"), nil)},
		false: {podWith(nil, nil), podWith(preferring("1: a Exists"), nil)},
	} {
		for i, pod := range pods {
			if r := nodeselector.OfPod(pod.Pod.GetSpec()); r.Chooses() != want || !want && !r.Matches(node(n).Node) {
				t.Errorf("pod %d, that chooses: %v", i, r.Chooses())
			}
		}
	}
	for want, labels := range map[bool]map[string]string{true: {"disk": "ssd", "empty": ""},
		false: {"disk": "ssd", "none": ""}} {
		if matches(podWith(requiring("rank Exists"), labels), node(n)) != want {
			t.Errorf("node selector %v: not %v", labels, want)
		}
		if matches(podWith(requiring("none Exists"), labels), node(n)) {
			t.Errorf("node selector %v: affinity was forgotten", labels)
		}
	}
}

// spec: SCHED-4
func TestPreFilter(t *testing.T) {
	const conflict = "Unresolvable: pod affinity terms conflict"
	for name, tc := range map[string]struct {
		added, own *corev1.NodeAffinity
		selector   map[string]string
		want       string
	}{
		"nothing":                {want: "Skip: "},
		"preferences only":       {own: preferring("1: a Exists"), want: "Skip: "},
		"added":                  {added: requiring("a Exists"), want: "Success: all"},
		"added preferences":      {added: preferring("1: a Exists"), want: "Skip: "},
		"selector":               {selector: map[string]string{"a": "b"}, want: "Success: all"},
		"labels":                 {own: requiring("a Exists"), want: "Success: all"},
		"no term":                {own: requiring(), want: "Success: all"},
		"a name":                 {own: requiring("| metadata.name In x"), want: "Success: x"},
		"a name and labels":      {own: requiring("a Exists | metadata.name In x"), want: "Success: x"},
		"names of terms add up":  {own: requiring("| metadata.name In x", "| metadata.name In y"), want: "Success: x y"},
		"a term without a name":  {own: requiring("| metadata.name In x", "a Exists"), want: "Success: all"},
		"NotIn names none":       {own: requiring("| metadata.name NotIn x"), want: "Success: all"},
		"In and NotIn":           {own: requiring("| metadata.name In x; metadata.name NotIn y"), want: "Success: x"},
		"within a term all hold": {own: requiring("| metadata.name In x,y; metadata.name In y,z"), want: "Success: y"},
		"a conflict":             {own: requiring("| metadata.name In x; metadata.name In y"), want: conflict},
		"a conflict of three": {own: requiring("| metadata.name In x; metadata.name In y; metadata.name In x"),
			want: conflict},
		"a conflict and a name": {own: requiring("| metadata.name In x; metadata.name In y", "| metadata.name In z"),
			want: "Success: z"},
		"a conflict in every term": {own: requiring("| metadata.name In x; metadata.name In y",
			"| metadata.name In y; metadata.name In z"), want: conflict},
	} {
		var state framework.CycleState
		r, s := plugin(t, tc.added).PreFilter(&state, podWith(tc.own, tc.selector), framework.NewSnapshot())
		got := s.Code().String() + ": " + s.Message()
		switch {
		case s.IsSuccess() && r == nil:
			got += "all"
		case s.IsSuccess():
			got += strings.Join(slices.Sorted(maps.Keys(r.NodeNames)), " ")
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A node that is not in the snapshot, as preemption imagines them, is judged alike.
// spec: SCHED-4
func TestFilter(t *testing.T) {
	const refused = "node(s) didn't match Pod's node affinity/selector"
	const enforced = "node(s) didn't match scheduler-enforced node affinity"
	for name, tc := range map[string]struct {
		added, own *corev1.NodeAffinity
		want       string
	}{
		"plain":                  {want: ""},
		"own matches":            {own: requiring("a Exists"), want: ""},
		"own does not":           {own: requiring("b Exists"), want: refused},
		"added matches":          {added: requiring("a Exists"), want: ""},
		"added does not":         {added: requiring("b Exists"), want: enforced},
		"added comes first":      {added: requiring("b Exists"), own: requiring("b Exists"), want: enforced},
		"added does, own not":    {added: requiring("a Exists"), own: requiring("b Exists"), want: refused},
		"added preferences":      {added: preferring("1: b Exists"), want: ""},
		"added without any term": {added: requiring(), want: enforced},
	} {
		p, pod, n := plugin(t, tc.added), podWith(tc.own, nil), node("n a=1")
		snapshot := framework.NewSnapshot()
		snapshot.Set("n", n)
		state := framework.NewCycleState(snapshot)
		p.PreFilter(state, pod, snapshot)
		for which, n := range map[string]*framework.NodeInfo{"in the snapshot": snapshot.Node("n"), "elsewhere": n} {
			s := p.Filter(state, pod, n)
			if s.Message() != tc.want || tc.want != "" && s.Code() != framework.Unresolvable {
				t.Errorf("%s %s: %s %q, want %q", name, which, s.Code(), s.Message(), tc.want)
			}
		}
	}
}

// spec: SCHED-2
func TestHelps(t *testing.T) {
	own, added := requiring("a Gt 3"), requiring("zone In here")
	for _, tc := range []struct {
		old, now string
		want     bool
	}{
		{"", "n a=4 zone=here", true}, {"", "n a=3 zone=here", false}, {"", "n a=4 zone=there", false}, {"", "n", false},
		{"n a=3 zone=here", "n a=4 zone=here", true}, {"n a=4 zone=there", "n a=4 zone=here", true},
		{"n", "n a=4 zone=here", true},
		{"n a=4 zone=here", "n a=5 zone=here", false}, {"n a=4 zone=here", "n a=3 zone=here", false},
		{"n a=1 zone=here", "n a=2 zone=here", false},
	} {
		c := &framework.Change{Event: framework.NodeAdded, Node: node(tc.now).Node}
		if tc.old != "" {
			c.Event, c.OldNode = framework.NodeLabels, node(tc.old).Node
		}
		p := plugin(t, added)
		if got := p.Helps(podWith(own, nil), c); got != tc.want {
			t.Errorf("%q to %q: %v", tc.old, tc.now, got)
		}
		if p.Events()&c.Event == 0 {
			t.Error("the plugin does not look at such changes")
		}
	}
}

func scores(t testing.TB, p *Plugin, pod *framework.PodInfo, nodes []*framework.NodeInfo) (raw, normal []int64) {
	t.Helper()
	snapshot := framework.NewSnapshot()
	for _, n := range nodes {
		snapshot.Set(n.Name, n)
	}
	nodes = snapshot.Nodes()
	state := framework.NewCycleState(snapshot)
	if s := p.PreScore(state, pod, nodes); s.Code() == framework.Skip {
		return nil, nil
	}
	for _, n := range nodes {
		raw = append(raw, p.Score(state, pod, n))
	}
	normal = slices.Clone(raw)
	p.NormalizeScore(state, pod, nodes, normal)
	return raw, normal
}

// spec: SCHED-5
func TestScore(t *testing.T) {
	nodes := []*framework.NodeInfo{node("n1 a=1"), node("n2 a=1 b=2"), node("n3")}
	for name, tc := range map[string]struct {
		added, own *corev1.NodeAffinity
		want       string
	}{
		"none":            {want: "[] []"},
		"required only":   {own: requiring("a Exists"), want: "[] []"},
		"one":             {own: preferring("7: a In 1"), want: "[7 7 0] [100 100 0]"},
		"sums":            {own: preferring("2: a Exists", "5: b Gt 1"), want: "[2 7 0] [28 100 0]"},
		"a name":          {own: preferring("1: a Exists", "3: | metadata.name In n3"), want: "[1 1 3] [33 33 100]"},
		"nothing matches": {own: preferring("9: c Exists"), want: "[0 0 0] [0 0 0]"},
		"an empty term":   {own: preferring("9:", "1: a Exists; b DoesNotExist"), want: "[1 0 0] [100 0 0]"},
		"unreadable":      {own: preferring("9: b Gt two", "4: b Lt 3"), want: "[0 4 0] [0 100 0]"},
		"only unreadable": {own: preferring("9: b Gt two"), want: "[] []"},
		"added":           {added: preferring("3: b Exists"), want: "[0 3 0] [0 100 0]"},
		"added and own":   {added: preferring("3: b Exists"), own: preferring("1: a Exists"), want: "[1 4 0] [25 100 0]"},
		"added of the other": {added: requiring("a Exists"), own: preferring("100: a DoesNotExist"),
			want: "[0 0 100] [0 0 100]"},
	} {
		raw, normal := scores(t, plugin(t, tc.added), podWith(tc.own, nil), nodes)
		if got := fmt.Sprint(raw, " ", normal); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Scores are within bounds, the largest is 100, and the order of the nodes changes none.
func TestScoreProperties(t *testing.T) {
	told := 0
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var nodes []*framework.NodeInfo
		for i := range 1 + rng.IntN(8) {
			nodes = append(nodes, node(fmt.Sprintf("n%d a=%d b=%d", i, rng.IntN(4), rng.IntN(4))))
		}
		var prefs []string
		for range rng.IntN(5) {
			prefs = append(prefs, fmt.Sprintf("%d: %s", 1+rng.IntN(100),
				[]string{"a In 1,2", "b NotIn 3", "a Gt 1", "b Lt 2", "| metadata.name In n1", "c DoesNotExist"}[rng.IntN(6)]))
		}
		p, pod := plugin(t, nil), podWith(preferring(prefs...), nil)
		_, got := scores(t, p, pod, nodes)
		if got == nil {
			continue
		}
		if most := slices.Max(got); slices.Min(got) < 0 || most != 100 && most != 0 {
			t.Fatalf("seed %d: %v", seed, got)
		} else if most == 100 && slices.Min(got) < 100 {
			told++
		}
		order := rng.Perm(len(nodes))
		var mixed []*framework.NodeInfo
		for _, i := range order {
			mixed = append(mixed, nodes[i])
		}
		_, again := scores(t, p, pod, mixed)
		for at, i := range order {
			if again[at] != got[i] {
				t.Fatalf("seed %d: in another order %s has %d, not %d", seed, nodes[i].Name, again[at], got[i])
			}
		}
	}
	if told < 100 {
		t.Errorf("only %d cases tell nodes apart", told)
	}
}

func TestNoAllocation(t *testing.T) {
	p, n := plugin(t, requiring("a Exists")), node("n a=1 b=2")
	a := requiring("b Gt 1 | metadata.name In n")
	a.PreferredDuringSchedulingIgnoredDuringExecution = preferring(
		"5: a In 1").PreferredDuringSchedulingIgnoredDuringExecution
	pod := podWith(a, map[string]string{"a": "1"})
	snapshot := framework.NewSnapshot()
	snapshot.Set("n", n)
	n = snapshot.Node("n")
	state := framework.NewCycleState(snapshot)
	p.PreFilter(state, pod, snapshot)
	p.PreScore(state, pod, nil)
	if allocs := testing.AllocsPerRun(100, func() {
		if p.Filter(state, pod, n) != nil || p.Score(state, pod, n) != 5 {
			t.Error("refused")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	plain, pl := podWith(nil, nil), plugin(t, nil)
	others := framework.NewCycleState(snapshot)
	p.PreFilter(others, plain, snapshot)
	if allocs := testing.AllocsPerRun(100, func() { p.Filter(others, plain, n) }); allocs != 0 {
		t.Errorf("%v allocations for a pod that leaves the choice to the added affinity", allocs)
	}
	if allocs := testing.AllocsPerRun(100, func() {
		pl.PreFilter(state, plain, nil)
		pl.PreScore(state, plain, nil)
	}); allocs != 0 {
		t.Errorf("%v allocations for a pod that chooses no node", allocs)
	}
}

func TestBadArgs(t *testing.T) {
	const req = "args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	const pref = "args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
	for want, a := range map[string]*corev1.NodeAffinity{
		req + `[1].matchExpressions[0].values: ["x"] is not one whole number, as Gt needs`: requiring(
			"a Exists", "a Gt x"),
		req + `[0].matchExpressions[1].operator: "Like" is none of In, NotIn, Exists, DoesNotExist, Gt, Lt`: requiring(
			"a Exists; b Like x"),
		req + `[0].matchExpressions[0].values: must not be empty for In`: requiring(
			"a In"),
		req + `[0].matchExpressions[0].values: must be empty for Exists`: requiring(
			"a Exists x"),
		req + `[0].matchFields[0].key: "metadata.uid" is not metadata.name`: requiring(
			"| metadata.uid In x"),
		req + `[0].matchFields[0].operator: "Exists" is neither In nor NotIn`: requiring(
			"| metadata.name Exists"),
		req + `[0].matchFields[0].values: must have one element`: requiring(
			"| metadata.name In x,y"),
		pref + `[0].weight: 0 is not within 1..100`: preferring(
			"0: a Exists"),
		pref + `[0].weight: 101 is not within 1..100` + "\n" + pref +
			`[0].preference.matchExpressions[0].values: must not be empty for NotIn`: preferring("101: a NotIn"),
	} {
		if _, err := New(Args{AddedAffinity: a}); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
