// Package histories gives the same history of objects to Monoplane's controllers and to those of Kubernetes' own
// controller manager, each in a cluster of its own, and compares what both have made of it after every step: the
// objects, what they own, the pods, and how many pods were made and deleted on the way. Everything lives in virtual
// time, so that neither the minutes of a back-off nor the speed of the machine count.
package histories

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random histories; 0 takes the time")
	count = flag.Int("count", 2, "number of histories of each kind")
	steps = flag.Int("steps", 12, "number of steps of a history")
)

const (
	// settling is how long a step is let alone before the worlds are compared. It is no multiple of what controllers
	// wait for, so that nothing falls due just then.
	settling = 61700 * time.Millisecond
	// patience is how long the worlds may go on to differ.
	patience = 40 * time.Minute
)

// kind is what histories are about.
type kind struct {
	// controllers are those that are compared, without those that run in neither world.
	controllers, without []string
	// nodes is how many simulated nodes there are; -1 for none.
	nodes int
	// begin makes what is there first.
	begin func(*testing.T, *rand.Rand, *world)
	// steps are what can happen.
	steps []step
	shown []shown
	// named says that the names of pods are compared too.
	named bool
	// overlooked are objects of which Kubernetes' controller looks at one only where what happens concerns several. All
	// of its world are touched before it is compared.
	overlooked *schema.GroupVersionResource
}

// step is something that happens in both worlds alike.
type step struct {
	name string
	do   func(*testing.T, *rand.Rand, *world)
}

func kinds() map[string]kind {
	all := map[string]kind{}
	for _, some := range []map[string]kind{workloads(), jobs(), servicesKind(), owners(), budgets(), lostNodes()} {
		maps.Copy(all, some)
	}
	return all
}

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard()) // Kubernetes' controllers say each time that a cache is behind their writes
	// They also hold back errors by the time of the last one in the process, which the next history's clock is behind.
	utilruntime.ErrorHandlers = nil //nolint:reassign // there is no other way to leave the delay out
	os.Exit(m.Run())
}

// The same history leaves the same in both worlds, step by step. spec: WORK-1
func TestHistories(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano()) //nolint:gosec // not negative
	}
	t.Logf("run again with -seed=%d", s)
	all := kinds()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(s, 1)) //nolint:gosec // to be repeated
			for i := range *count {
				history := r.Uint64()
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { play(t, history, all[name]) })
				})
			}
		})
	}
}

func play(t *testing.T, history uint64, k kind) {
	worlds := newWorlds(t, k)
	r := rand.New(rand.NewPCG(history, 1)) //nolint:gosec // to be repeated
	log := []string{"the beginning"}
	choice := r.Uint64()
	for _, w := range worlds {
		k.begin(t, rand.New(rand.NewPCG(choice, 1)), w) //nolint:gosec // to be repeated
	}
	for range *steps {
		compare(t, worlds, k, log)
		s, choice := k.steps[r.IntN(len(k.steps))], r.Uint64()
		log = append(log, s.name)
		for _, w := range worlds {
			s.do(t, rand.New(rand.NewPCG(choice, 1)), w) //nolint:gosec // to be repeated
		}
	}
	compare(t, worlds, k, log)
}

// compare waits until the worlds have settled and are alike.
func compare(t *testing.T, worlds []*world, k kind, log []string) {
	t.Helper()
	for begin := time.Now(); ; {
		time.Sleep(settling) // virtual
		if k.overlooked != nil {
			synctest.Wait()
			for _, o := range worlds[1].list(t, *k.overlooked) {
				worlds[1].patch(t, *k.overlooked, o.GetName(), fields{"metadata": fields{"annotations": fields{
					"looked-at": time.Now().String()}}})
			}
			time.Sleep(settling)
		}
		synctest.Wait()
		ours, theirs := worlds[0].describe(t, k), worlds[1].describe(t, k)
		if ours == theirs {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("after %s\n%s", strings.Join(log, ", "), difference(worlds, ours, theirs))
		}
	}
}

// difference shows the lines of the two worlds that are not in both, below those that are.
func difference(worlds []*world, ours, theirs string) string {
	a, b := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	var out []string
	for _, l := range a {
		if slices.Contains(b, l) {
			out = append(out, "both        "+l)
		} else {
			out = append(out, fmt.Sprintf("%-11s %s", worlds[0].name, l))
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out = append(out, fmt.Sprintf("%-11s %s", worlds[1].name, l))
		}
	}
	return strings.Join(out, "\n")
}
