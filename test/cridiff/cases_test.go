//go:build rootonly

package cridiff_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// table is every feature by itself, and the scripts.
func table() []scenario {
	out := []scenario{{name: "default", play: (*play).run}}
	for _, f := range features {
		out = append(out, scenario{name: f.name, play: func(p *play) { f.ask(p); p.run() }})
	}
	return append(out, scripts...)
}

// The same calls have the same answers, and containers see the same.
//
// spec: CTR-4, CTR-5, CTR-6, SEC-1, LIFE-12
func TestRootSameAsContainerd(t *testing.T) {
	w := newWorld(t)
	d := &differ{needed: map[int]bool{}}
	list := table()
	if testing.Short() {
		var some []scenario
		for i := 0; i < len(list); i += 6 {
			some = append(some, list[i])
		}
		w.compareAll(t, d, 1, some)
		return
	}
	if *only != "" || *first > 0 {
		var some []scenario
		for _, c := range list[*first:] {
			if fits(*only, c.name) {
				some = append(some, c)
			}
		}
		w.compareAll(t, d, 1, some)
		return
	}
	w.compareAll(t, d, 1, list)
	for i, row := range wanted {
		if !d.needed[i] {
			t.Errorf("this difference is wanted, but there is none: %+v", row)
		}
	}
}

// Features combined at random have the same outcome, too.
//
// spec: CTR-4, CTR-5, CTR-6, SEC-1, LIFE-12
func TestRootSameAsContainerdRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("the table is enough")
	}
	seed := *caseSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-caseseed %d -cases %d", seed, *caseCount)
	rng := rand.New(rand.NewPCG(seed, 0))
	var list []scenario
	for range *caseCount {
		const most = 6
		var some []feature
		var names []string
		for range 2 + rng.IntN(most-1) {
			some = append(some, features[rng.IntN(len(features))])
		}
		slices.SortStableFunc(some, func(x, y feature) int {
			switch {
			case takesAway(x) == takesAway(y):
				return 0
			case takesAway(x):
				return 1
			}
			return -1
		})
		for _, f := range some {
			names = append(names, f.name)
		}
		list = append(list, scenario{name: randomMark + strings.Join(names, plus), play: func(p *play) {
			for _, f := range some {
				f.ask(p)
			}
			p.container.Mounts = lastOfEachPath(p.container.Mounts)
			if sec := p.container.GetLinux().GetSecurityContext(); sec != nil {
				if sec.RunAsUsername != "" {
					sec.RunAsUser = nil // CRI: only one of the two can be specified.
				}
				// CRI: the pod says so, too.
				sec.Privileged = sec.Privileged && p.pod.GetLinux().GetSecurityContext().GetPrivileged()
			}
			p.run()
		}})
	}
	newWorld(t).compareAll(t, &differ{needed: map[int]bool{}}, seed, list)
}

// lastOfEachPath leaves out mounts that others are at the place of: that ours has only the last one is in the table.
func lastOfEachPath(mounts []*runtimeapi.Mount) []*runtimeapi.Mount {
	var out []*runtimeapi.Mount
	for i, m := range mounts {
		later := slices.ContainsFunc(mounts[i+1:], func(o *runtimeapi.Mount) bool {
			return filepath.Join("/", o.GetContainerPath()) == filepath.Join("/", m.GetContainerPath())
		})
		if !later {
			out = append(out, m)
		}
	}
	return out
}
