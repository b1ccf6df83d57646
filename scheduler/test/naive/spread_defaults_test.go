package naive

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/podtopologyspread"
	"monoplane.dev/scheduler/test/objects"
)

// The profile and the naive scheduler agree on random pods and clusters with Services and workloads, and with random
// constraints by default, in both ways of defaulting. One cluster is repeated with -seed.
//
// spec: SPREAD-3, SPREAD-4
func TestDefaultsAgainstNaive(t *testing.T) {
	const clusters, podsEach = 1500, 4
	r := newReferee(t)
	system := r.profile
	counts := objects.Counts{}
	first, last := 0, clusters
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	for seed := first; seed < last; seed++ {
		d := NewDice(uint64(seed)) //nolint:gosec // not negative
		n := &defaults{system: d.one(2), groups: d.groups()}
		way := "System: "
		r.profile = system
		if !n.system {
			way = "List: "
			n.list = d.defaults()
			r.profile = listing(t, n.list)
		}
		c := d.Cluster()
		if d.one(3) { // so that nothing but the spreading tells the nodes apart
			for _, node := range c.nodes {
				node.Spec.Taints, node.Spec.Unschedulable = nil, false
			}
		}
		var pods []*corev1.Pod
		for i := range podsEach {
			p := d.Pending(fmt.Sprint("new", i))
			if !d.one(4) {
				p.Spec.TopologySpreadConstraints = nil
			}
			d.own(p)
			pods = append(pods, p)
		}
		atOnce := c.snapshot()
		atOnce.SetGroups(n.framework(t))
		grown := c.history(d, func(s *framework.Snapshot) {
			s.SetGroups(n.framework(t)[:d.IntN(len(n.groups)+1)])
			if _, err := r.profile.Explain(framework.NewPodInfo(pods[d.IntN(podsEach)]), s); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
		grown.SetGroups(n.framework(t))
		for _, p := range pods {
			want, gets := n.explain(r, c, p)
			for i, s := range []*framework.Snapshot{atOnce, grown} {
				if about := r.agree(s, p, want); about != nil {
					t.Fatalf("seed %d, snapshot %d: node %s: %s\npod %s\n%+v\n%v", seed, i, about.node, about.about,
						p.AppendJSON(nil), n.groups, n.list)
				}
			}
			n.count(counts, way, p, gets, want)
		}
	}
	if *onlySeed < 0 {
		counts.Floors(t, map[string]int{
			"System: given": 400, "List: given": 400, "System: scores differ": 150, "List: scores differ": 50,
			"List: refused":          300,
			"System: several groups": 150, "List: several groups": 150, "of a workload": 150, "own constraints": 250,
			"belongs to nothing": 1000,
		})
	}
}

// listing is the default profile with these constraints by default.
func listing(t *testing.T, list []*corev1.TopologySpreadConstraint) *framework.Profile {
	t.Helper()
	p, err := podtopologyspread.NewWith(podtopologyspread.Args{DefaultingType: podtopologyspread.List,
		DefaultConstraints: list})
	if err != nil {
		t.Fatal(err)
	}
	plugins := scheduler.DefaultPlugins(client.New(nil))
	i := slices.IndexFunc(plugins, func(e framework.Enabled) bool { return e.Plugin.Name() == p.Name() })
	plugins[i].Plugin = p
	profile, err := framework.NewProfile("listing", 0, plugins...)
	if err != nil {
		t.Fatal(err)
	}
	return profile
}

// framework returns the groups as a snapshot takes them.
func (n *defaults) framework(t *testing.T) []*framework.Group {
	t.Helper()
	var list []*framework.Group
	for _, g := range n.groups {
		list = append(list, &framework.Group{
			Namespace: g.namespace, Selector: selector(t, g.selector), Service: g.kind == "", APIVersion: "apps/v1",
			Kind: g.kind, Name: g.name,
		})
	}
	return list
}

func selector(t *testing.T, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	all := labels.NewSelector()
	for k, v := range s.MatchLabels {
		all = all.Add(requirement(t, k, selection.Equals, v))
	}
	for _, e := range s.MatchExpressions {
		op := map[string]selection.Operator{
			"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
		}[e.Operator]
		all = all.Add(requirement(t, e.Key, op, e.Values...))
	}
	return all
}

func requirement(t *testing.T, key string, op selection.Operator, values ...string) labels.Requirement {
	t.Helper()
	r, err := labels.NewRequirement(key, op, values)
	if err != nil {
		t.Fatal(err)
	}
	return *r
}

// explain is what the naive scheduler says of the pod with the constraints that it gets, and whether it gets any.
func (n *defaults) explain(r *referee, c *Cluster, pod *corev1.Pod) (want map[string]*verdict, gets bool) {
	given, gets := n.given(pod)
	want = r.naive(c, given)
	if !gets || !n.system {
		return want, gets
	}
	var fit []*corev1.Node
	for _, node := range c.nodes {
		if len(want[node.Metadata.Name].refusals) == 0 {
			fit = append(fit, node)
		}
	}
	for i, score := range systemScore(c, given, fit) {
		want[fit[i].Metadata.Name].scores["PodTopologySpread"] = score
	}
	return want, gets
}

// count notes what a case was about.
func (n *defaults) count(counts objects.Counts, way string, pod *corev1.Pod, gets bool, want map[string]*verdict) {
	of := 0
	for _, g := range n.groups {
		if g.has(pod) {
			of++
			if g.kind != "" && gets {
				counts["of a workload"]++
			}
		}
	}
	switch {
	case len(pod.Spec.TopologySpreadConstraints) > 0 && of > 0:
		counts["own constraints"]++
	case of == 0:
		counts["belongs to nothing"]++
	}
	if !gets {
		return
	}
	counts[way+"given"]++
	if of > 1 {
		counts[way+"several groups"]++
	}
	scores := map[int64]bool{}
	for _, v := range want {
		if len(v.refusals) > 0 && v.refusals[0].plugin == "PodTopologySpread" {
			counts[way+"refused"]++
		}
		if score, ok := v.scores["PodTopologySpread"]; ok {
			scores[score] = true
		}
	}
	if len(scores) > 1 {
		counts[way+"scores differ"]++
	}
}
