package naive

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

var onlySeed = flag.Int("seed", -1, "the one cluster of the comparison with the naive scheduler to look at")

// referee compares what the default profile and the naive scheduler say. Plugins that the profile does not have are
// left out, so that each is compared as soon as it is enabled.
type referee struct {
	profile         *framework.Profile
	filters, scores []string
	// refused counts by plugin the nodes that it was the first to refuse; differed the cases in which its scores were not
	// all the same.
	refused, differed map[string]int
	// pods and nodes that the two agreed about, and nodes that fit.
	cases, nodes, fit int
}

func newReferee(t testing.TB) *referee {
	t.Helper()
	profile, err := scheduler.DefaultProfile(client.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	r := &referee{profile: profile, refused: map[string]int{}, differed: map[string]int{}}
	for _, e := range scheduler.DefaultPlugins(client.New(nil)) {
		if _, ok := e.Plugin.(framework.Filter); ok {
			r.filters = append(r.filters, e.Plugin.Name())
		}
		if _, ok := e.Plugin.(framework.Score); ok {
			r.scores = append(r.scores, e.Plugin.Name())
		}
	}
	return r
}

// The default profile and the naive scheduler agree on random pods and clusters: which nodes fit, which plugin is the
// first to refuse the others and why, each plugin's normalised score and the sum. A snapshot that came about by many
// changes is explained as one made at once. One cluster is repeated with -seed.
//
// spec: SCHED-4, SCHED-5, SPREAD-1, SPREAD-2, SPREAD-3
func TestAgainstNaive(t *testing.T) {
	const clusters, podsEach = 2500, 4
	r := newReferee(t)
	first, last := 0, clusters
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	for seed := first; seed < last; seed++ {
		d := NewDice(uint64(seed)) //nolint:gosec // not negative
		c := d.Cluster()
		var pods []*corev1.Pod
		for i := range podsEach {
			pods = append(pods, d.Pending(fmt.Sprint("new", i)))
		}
		atOnce := c.snapshot()
		grown := c.history(d, func(s *framework.Snapshot) {
			if _, err := r.profile.Explain(framework.NewPodInfo(pods[d.IntN(podsEach)]), s); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
		for _, p := range pods {
			want := r.naive(c, p)
			if r.agree(atOnce, p, want) != nil {
				t.Fatalf("seed %d: %s", seed, r.story(c, p))
			}
			if about := r.agree(grown, p, want); about != nil {
				t.Fatalf("seed %d: only on the snapshot that changes led to: node %s: %s\npod %s",
					seed, about.node, about.about, p.AppendJSON(nil))
			}
			r.count(want)
		}
	}
	t.Logf("seeds %d..%d: %d pods, %d nodes of which %d fit", first, last-1, r.cases, r.nodes, r.fit)
	t.Logf("refused by: %v", r.refused)
	t.Logf("scores differ: %v", r.differed)
	if *onlySeed < 0 {
		r.floors(t)
	}
}

// floors make sure that the comparison was about something.
func (r *referee) floors(t *testing.T) {
	t.Helper()
	if r.cases < 10_000 || r.fit < r.nodes/20 {
		t.Errorf("%d cases, %d of %d nodes fit: too few", r.cases, r.fit, r.nodes)
	}
	for name := range allFilters() {
		if slices.Contains(r.filters, name) && r.refused[name] < 300 {
			t.Errorf("%s was the first to refuse %d times only", name, r.refused[name])
		}
	}
	for name := range allScores() {
		if slices.Contains(r.scores, name) && r.differed[name] < 300 {
			t.Errorf("the scores of %s differed %d times only", name, r.differed[name])
		}
	}
}

// naive is what the naive scheduler says with the profile's plugins.
func (r *referee) naive(c *Cluster, pod *corev1.Pod) map[string]*verdict {
	return c.explain(pod, r.filters, r.scores)
}

// count adds to the counts what the naive scheduler says.
func (r *referee) count(verdicts map[string]*verdict) {
	r.cases++
	seen := map[string]map[int64]bool{}
	for _, v := range verdicts {
		r.nodes++
		if len(v.refusals) > 0 {
			r.refused[v.refusals[0].plugin]++
			continue
		}
		r.fit++
		for name, score := range v.scores {
			if seen[name] == nil {
				seen[name] = map[int64]bool{}
			}
			seen[name][score] = true
		}
	}
	for name, scores := range seen {
		if len(scores) > 1 {
			r.differed[name]++
		}
	}
}
