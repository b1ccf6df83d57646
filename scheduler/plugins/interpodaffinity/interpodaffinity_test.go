package interpodaffinity

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

func newPlugin(t testing.TB, args Args) *Plugin {
	t.Helper()
	p, err := New(args)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type wish func(*corev1.Affinity)

func term(key, app string) *corev1.PodAffinityTerm {
	return &corev1.PodAffinityTerm{TopologyKey: key,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func near(key, app string) wish {
	return func(a *corev1.Affinity) {
		l := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*l = append(*l, term(key, app))
	}
}

func apart(key, app string) wish {
	return func(a *corev1.Affinity) {
		l := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*l = append(*l, term(key, app))
	}
}

func prefer(weight int32, key, app string) wish {
	return func(a *corev1.Affinity) {
		l := &a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		if weight < 0 {
			l, weight = &a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -weight
		}
		*l = append(*l, &corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: term(key, app)})
	}
}

func pod(app string, wishes ...wish) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: app, Uid: app, Labels: map[string]string{"app": app}},
		Spec: &corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{},
			PodAntiAffinity: &corev1.PodAntiAffinity{}}},
	}
	for _, w := range wishes {
		w(p.Spec.Affinity)
	}
	return framework.NewPodInfo(p)
}

// cluster is a1 and a2 in zone a, b1 in zone b, and c1 without a zone.
func cluster(pods map[string][]*framework.PodInfo) *framework.Snapshot {
	s := framework.NewSnapshot()
	for _, name := range []string{"a1", "a2", "b1", "c1"} {
		labels := map[string]string{"host": name}
		if zone := name[:1]; zone != "c" {
			labels["zone"] = zone
		}
		n := framework.NewNodeInfo(name, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: labels}})
		for _, p := range pods[name] {
			n = n.WithPod(p)
		}
		s.Set(name, n)
	}
	return s
}

type on = map[string][]*framework.PodInfo

// spec: SCHED-4
func TestFilter(t *testing.T) {
	p := newPlugin(t, Args{})
	for name, c := range map[string]struct {
		pods on
		pod  *framework.PodInfo
		want string
	}{
		"no wishes":        {on{"a1": {pod("web")}}, pod("db"), "skip"},
		"only preferences": {on{"a1": {pod("web")}}, pod("db", prefer(1, "zone", "web")), "skip"},
		"near":             {on{"a1": {pod("web")}}, pod("db", near("zone", "web")), "a1 a2 b1(far) c1(far)"},
		"near by host": {on{"a1": {pod("web")}}, pod("db", near("host", "web")),
			"a1 a2(far) b1(far) c1(far)"},
		"near to nobody":    {nil, pod("db", near("zone", "web")), "a1(far) a2(far) b1(far) c1(far)"},
		"first of its kind": {nil, pod("web", near("zone", "web")), "a1 a2 b1 c1(far)"},
		"second of its kind": {on{"b1": {pod("web")}}, pod("web", near("zone", "web")),
			"a1(far) a2(far) b1 c1(far)"},
		"the first has no label": {on{"c1": {pod("web")}}, pod("web", near("zone", "web")), "a1 a2 b1 c1(far)"},
		"two terms, no pod for both": {on{"a1": {pod("web"), pod("db")}},
			pod("x", near("zone", "web"), near("zone", "db")), "a1(far) a2(far) b1(far) c1(far)"},
		"two keys": {on{"a1": {pod("web")}}, pod("x", near("zone", "web"), near("host", "web")),
			"a1 a2(far) b1(far) c1(far)"},
		"one key only where it is": {on{"c1": {pod("web")}}, pod("web", near("zone", "web"), near("host", "web")),
			"a1(far) a2(far) b1(far) c1(far)"},
		"apart": {on{"a1": {pod("web")}}, pod("db", apart("zone", "web")),
			"a1(near) a2(near) b1 c1"},
		"apart from either": {on{"a1": {pod("web")}, "b1": {pod("x")}},
			pod("db", apart("host", "web"), apart("zone", "x")), "a1(near) a2 b1(near) c1"},
		"repelled": {on{"a1": {pod("web", apart("zone", "db"))}}, pod("db"),
			"a1(repelled) a2(repelled) b1 c1"},
		"repelled, though not this kind": {on{"a1": {pod("web", apart("zone", "db"))}}, pod("x"), "skip"},
		"apart before repelled": {on{"a1": {pod("web", apart("host", "web"))}}, pod("web", apart("host", "web")),
			"a1(near) a2 b1 c1"},
		"far before near": {on{"a1": {pod("web")}}, pod("db", near("zone", "y"), apart("zone", "web")),
			"a1(far) a2(far) b1(far) c1(far)"},
	} {
		if got := fitting(p, c.pod, cluster(c.pods)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Pods that room is kept for matter as far as their anti-affinity may be against the pod: others must not cost it the
// answers that are kept for its template.
// spec: SCHED-7
func TestSkipBesideNominated(t *testing.T) {
	p, s := newPlugin(t, Args{}), cluster(nil)
	keep := func(node string, pods ...*framework.PodInfo) { s.Set(node, s.Node(node).WithNominated(pods)) }
	check := func(when, want string) {
		t.Helper()
		if got := fitting(p, pod("db"), s); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	const all = "a1 a2 b1 c1"
	keep("a1", pod("web"), pod("web", near("zone", "web"), prefer(1, "zone", "db")))
	check("room for pods that repel nobody", "skip")
	keep("a2", pod("web"), pod("web", apart("zone", "db")))
	check("and for one that repels", all)
	keep("a1", pod("web", apart("zone", "x")))
	check("two such", all)
	keep("a2")
	check("one of them has got its place", all)
	s.Set("a1", s.Node("a1").WithPod(pod("web")))
	check("a pod comes to the node of the other", all)
	s.Set("a1", nil)
	check("that node is gone", "skip")
}

func fitting(p *Plugin, pod *framework.PodInfo, s *framework.Snapshot) string {
	state := framework.NewCycleState(s)
	if _, status := p.PreFilter(state, pod, s); status.Code() == framework.Skip {
		return "skip"
	}
	var words []string
	for _, n := range s.Nodes() {
		words = append(words, n.Name+map[*framework.Status]string{nil: "", p.far: "(far)", p.near: "(near)",
			p.repelled: "(repelled)"}[p.Filter(state, pod, n)])
	}
	return strings.Join(words, " ")
}

// Affinity cannot be mended by removing pods, the others can. spec: SCHED-6
func TestRefusals(t *testing.T) {
	p := newPlugin(t, Args{})
	for s, want := range map[*framework.Status]string{
		p.far:      "Unresolvable: node(s) didn't match pod affinity rules",
		p.near:     "Unschedulable: node(s) didn't match pod anti-affinity rules",
		p.repelled: "Unschedulable: node(s) didn't satisfy existing pods anti-affinity rules",
	} {
		if got := fmt.Sprintf("%v: %s", s.Code(), s.Message()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// spec: SCHED-5
func TestScore(t *testing.T) {
	zero, ten := int32(0), int32(10)
	for name, c := range map[string]struct {
		args Args
		pods on
		pod  *framework.PodInfo
		want string
	}{
		"nobody prefers": {Args{}, on{"a1": {pod("web")}}, pod("db"), "skip"},
		"no such pod":    {Args{}, nil, pod("db", prefer(5, "zone", "web")), "skip"},
		"prefers":        {Args{}, on{"a1": {pod("web")}}, pod("db", prefer(5, "zone", "web")), "100 100 0 0"},
		"prefers not":    {Args{}, on{"a1": {pod("web")}}, pod("db", prefer(-5, "host", "web")), "0 100 100 100"},
		"by weight and count": {Args{}, on{"a1": {pod("web")}, "b1": {pod("web"), pod("web2")}},
			pod("db", prefer(50, "zone", "web"), prefer(25, "host", "web2")), "66 66 100 0"},
		"is preferred":     {Args{}, on{"a1": {pod("web", prefer(3, "host", "db"))}}, pod("db"), "100 0 0 0"},
		"is preferred not": {Args{}, on{"a1": {pod("web", prefer(-3, "zone", "db"))}}, pod("db"), "0 0 100 100"},
		"is required":      {Args{}, on{"b1": {pod("web", near("host", "db"))}}, pod("db"), "0 0 100 0"},
		"weight of required": {Args{HardPodAffinityWeight: &ten}, on{"a1": {pod("web", near("host", "db"))},
			"b1": {pod("web", prefer(20, "host", "db"))}}, pod("db"), "50 0 100 0"},
		"required without": {Args{HardPodAffinityWeight: &zero}, on{"b1": {pod("web", near("host", "db"))}}, pod("db"),
			"skip"},
		"ignored": {Args{IgnorePreferredTermsOfExistingPods: true},
			on{"a1": {pod("web", prefer(3, "host", "db"))}}, pod("db"), "skip"},
		"not ignored": {
			Args{IgnorePreferredTermsOfExistingPods: true}, on{"a1": {pod("web", prefer(3, "host", "db"))}, "a2": {pod("x")}},
			pod("db", prefer(6, "host", "x")), "50 100 0 0",
		},
		"all alike": {Args{}, on{"a1": {pod("web")}, "b1": {pod("x", prefer(-1, "zone", "db"))}},
			pod("db", prefer(-1, "zone", "web"), prefer(-1, "host", "none")), "0 0 0 100"},
	} {
		p, s := newPlugin(t, c.args), cluster(c.pods)
		state := framework.NewCycleState(s)
		if p.PreScore(state, c.pod, s.Nodes()).Code() == framework.Skip {
			if c.want != "skip" {
				t.Errorf("%s: skip, want %s", name, c.want)
			}
			continue
		}
		var scores []int64
		for _, n := range s.Nodes() {
			scores = append(scores, p.Score(state, c.pod, n))
		}
		p.NormalizeScore(state, c.pod, s.Nodes(), scores)
		if got := strings.Trim(fmt.Sprint(scores), "[]"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestArgs(t *testing.T) {
	for _, w := range []int32{-1, 101} {
		if _, err := New(Args{HardPodAffinityWeight: &w}); err == nil ||
			!strings.Contains(err.Error(), "args.hardPodAffinityWeight: ") {
			t.Errorf("weight %d: %v", w, err)
		}
	}
}

// Weights are the same whether they were added up by domain, as with few domains, or are added up for each node.
func TestManyDomains(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := newPlugin(t, Args{})
	for _, hosts := range []int{fewDomains, fewDomains + 1, 2 * fewDomains} {
		s, want := framework.NewSnapshot(), make([]int64, hosts)
		for i := range hosts {
			name := fmt.Sprint("n", i)
			n := framework.NewNodeInfo(name, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name,
				Labels: map[string]string{"host": name}}})
			for range rng.IntN(4) {
				switch rng.IntN(4) {
				case 0:
					n, want[i] = n.WithPod(pod("x")), want[i]+7
				case 1:
					n, want[i] = n.WithPod(pod("y")), want[i]-2
				case 2:
					n, want[i] = n.WithPod(pod("z", prefer(5, "host", "db"))), want[i]+5
				default:
					n, want[i] = n.WithPod(pod("z", near("host", "db"))), want[i]+1
				}
			}
			s.Set(name, n)
		}
		db, state := pod("db", prefer(7, "host", "x"), prefer(-2, "host", "y")), framework.NewCycleState(s)
		p.PreScore(state, db, s.Nodes())
		for i, n := range s.Nodes() {
			if got := p.Score(state, db, n); got != want[i] {
				t.Fatalf("%d hosts: %s has %d, want %d", hosts, n.Name, got, want[i])
			}
		}
	}
}

// Filter and Score allocate nothing.
func TestAllocations(t *testing.T) {
	p := newPlugin(t, Args{})
	s := cluster(on{"a1": {pod("web", apart("zone", "db"), prefer(1, "zone", "db"))}})
	db, state := pod("db", near("zone", "web"), apart("host", "db"), prefer(1, "host", "web")), framework.NewCycleState(s)
	p.PreFilter(state, db, s)
	p.PreScore(state, db, s.Nodes())
	if n := testing.AllocsPerRun(100, func() {
		for _, n := range s.Nodes() {
			p.Filter(state, db, n)
			p.Score(state, db, n)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
