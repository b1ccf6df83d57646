package crash

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// kind is a kind of fault; a run injects those that it was asked for.
type kind string

const (
	killServer     kind = "kill-server"     // SIGKILL at a random moment, also while it starts
	endServer      kind = "end-server"      // SIGTERM, Ctrl-C, and Ctrl-C twice
	pauseServer    kind = "pause-server"    // SIGSTOP, and SIGCONT later
	killShim       kind = "kill-shim"       // SIGKILL of one shim
	pauseShim      kind = "pause-shim"      // SIGSTOP of one shim, and SIGCONT later or never
	stopParent     kind = "stop-parent"     // a container stops its own shim for good
	killContainer  kind = "kill-container"  // SIGKILL of a container's process
	pauseContainer kind = "pause-container" // SIGSTOP of a container's process, and SIGCONT later or never
	slowDisk       kind = "slow-disk"       // writes and flushes take long
	failDisk       kind = "fail-disk"       // writes and flushes fail with EIO or ENOSPC
	answers        kind = "answers"         // answers of shims are late, lost, or given twice
	descriptors    kind = "descriptors"     // a small descriptor table, and a flood of connections
	system         kind = "system"          // deletion of system objects, which come back
	protected      kind = "protected"       // deletion of system objects that must be refused
	copies         kind = "copies"          // a copy of the data directory is started beside the original
	clock          kind = "clock"           // the machine's clock is set forth or back, where that is allowed
)

var allKinds = []kind{
	killServer, endServer, pauseServer, killShim, pauseShim, stopParent, killContainer, pauseContainer,
	slowDisk, failDisk, answers, descriptors, system, protected, copies, clock,
}

// Kinds of faults of pods with a network of their own.
const (
	killNode  kind = "kill-node"  // SIGKILL of the helper that holds the node namespace, or of its spare
	killNodes kind = "kill-nodes" // of both at once
	pauseNode kind = "pause-node" // SIGSTOP of one of them, and SIGCONT later or never
	killMaker kind = "kill-maker" // SIGKILL of the programs that make containers, as long as there are any
	starve    kind = "starve"     // the server has as many descriptors as it has open, and no more, for a while
)

// networkKinds are those of a cluster whose pods are of images and have a network of their own.
var networkKinds = []kind{
	killServer, endServer, killNode, killShim, killNodes, pauseServer, killMaker, pauseNode, killContainer, starve,
	pauseShim, pauseContainer, slowDisk, failDisk, answers, system, protected, copies, clock,
}

// chosenKinds reads MONOPLANE_CRASH_KINDS: names of kinds with commas between them, or, when each begins with a minus,
// of those to leave out. Empty means all.
func chosenKinds(text string, all []kind) ([]kind, error) {
	if text == "" {
		return all, nil
	}
	var with, without []kind
	for name := range strings.SplitSeq(text, ",") {
		rest, minus := strings.CutPrefix(name, "-")
		if !slices.Contains(all, kind(rest)) {
			return nil, fmt.Errorf("there is no kind of fault %q; there are %v", rest, all)
		}
		if minus {
			without = append(without, kind(rest))
		} else {
			with = append(with, kind(rest))
		}
	}
	if len(with) > 0 && len(without) > 0 {
		return nil, fmt.Errorf("%q: either the kinds that are wanted or those that are not", text)
	}
	if len(with) > 0 {
		return with, nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(k kind) bool { return slices.Contains(without, k) }), nil
}

// fault is one fault of a round.
type fault struct {
	Kind kind
	At   time.Duration // after the load has begun
	For  time.Duration // until it is undone; forever means not at all
	Pick uint64        // chooses the victim among those that there are
}

const forever = time.Duration(1<<63 - 1)

// ending is how the server of a round ends.
type ending string

const (
	byKill       ending = "kill"
	byTerm       ending = "term"            // pods go on
	byInterrupt  ending = "interrupt"       // pods are stopped
	byInterrupt2 ending = "interrupt-twice" // pods are being stopped, and go on
)

// round is what happens in one life of the server.
type round struct {
	Early  time.Duration // a server is killed so long after its start, before the one of the round; 0 for none
	Life   time.Duration // how long there is load
	End    ending
	Force  bool          // pods are deleted by force at the last moment
	Again  time.Duration // between the two signals of byInterrupt2
	Small  bool          // the server has a small descriptor table
	Copied bool          // a copy of the data directory runs beside
	Faults []fault
}

// planner makes rounds. The same seed and kinds make the same rounds.
type planner struct {
	rng     *rand.Rand
	kinds   []kind
	made    int  // rounds
	patient bool // some rounds and pauses are longer than the agent's longest deadline for a start
}

// deadline is longer than the agent waits for the start of a sandbox or container.
const deadline = 130 * time.Second

func newPlanner(seed uint64, kinds []kind, patient bool) *planner {
	return &planner{rng: rand.New(rand.NewPCG(seed, 1)), kinds: kinds, patient: patient}
}

func (p *planner) has(k kind) bool { return slices.Contains(p.kinds, k) }

func (p *planner) below(d time.Duration) time.Duration { return time.Duration(p.rng.Int64N(int64(d))) }

// next makes a round of faults by chance, and of one of the kind whose turn it is, so that a short run has all.
func (p *planner) next() round {
	turn := p.kinds[p.made%len(p.kinds)]
	p.made++
	r := round{Life: p.below(1200 * time.Millisecond), End: byKill}
	switch n := p.rng.IntN(100); {
	case n == 0 && p.patient:
		r.Life = deadline + p.below(30*time.Second)
	case n < 10:
		r.Life = p.below(6 * time.Second)
	}
	if p.has(killServer) && (turn == killServer || p.rng.IntN(2) == 0) { // while it starts: it may get anywhere
		r.Early = 1 + p.below(150*time.Millisecond)
	}
	if p.has(endServer) && (turn == endServer || p.rng.IntN(4) == 0) {
		r.End = []ending{byTerm, byTerm, byInterrupt, byInterrupt2}[p.rng.IntN(4)]
		r.Again = p.below(time.Second)
	}
	r.Force = r.End == byKill && p.rng.IntN(3) == 0
	r.Small = p.has(descriptors) && (turn == descriptors || p.rng.IntN(20) == 0)
	if r.Copied = p.has(copies) && (turn == copies || p.rng.IntN(50) == 0); r.Copied {
		r.Life += 2 * time.Second // the copy needs a while to do harm
	}
	kinds := []kind{turn}
	for range p.rng.IntN(3) {
		kinds = append(kinds, p.kinds[p.rng.IntN(len(p.kinds))])
	}
	if r.Small {
		kinds = append(kinds, descriptors)
	}
	for i, k := range kinds {
		switch k {
		case killServer, endServer, copies, stopParent:
			continue // these have their own places
		case descriptors:
			if !r.Small || i < len(kinds)-1 {
				continue
			}
		}
		at := p.below(max(r.Life*3/4, 1))
		r.Faults = append(r.Faults, fault{Kind: k, Pick: p.rng.Uint64(), At: at, For: p.duration()})
	}
	slices.SortStableFunc(r.Faults, func(a, b fault) int { return int(a.At - b.At) })
	return r
}

// duration is mostly short; sometimes it is longer than each deadline, and sometimes there is no end.
func (p *planner) duration() time.Duration {
	switch n := p.rng.IntN(20); {
	case n < 12:
		return p.below(700 * time.Millisecond)
	case n < 17:
		return p.below(8 * time.Second)
	case n < 18 && p.patient:
		return deadline + p.below(30*time.Second)
	case n < 19:
		return forever
	}
	return p.below(3 * time.Second)
}

// spec: SAFE-2
func TestSameSeedSameFaults(t *testing.T) {
	a, b, c := newPlanner(7, allKinds, false), newPlanner(7, allKinds, false), newPlanner(8, allKinds, false)
	seen, differs := map[kind]bool{}, false
	for range len(allKinds) { // as in a short run
		x, y, z := a.next(), b.next(), c.next()
		if !reflect.DeepEqual(x, y) {
			t.Fatalf("one seed gave %+v and %+v", x, y)
		}
		differs = differs || !reflect.DeepEqual(x, z)
		for _, f := range x.Faults {
			seen[f.Kind] = true
		}
		if x.Early > 0 {
			seen[killServer] = true
		}
		seen[endServer] = seen[endServer] || x.End != byKill
		seen[copies] = seen[copies] || x.Copied
	}
	if !differs {
		t.Error("two seeds gave the same rounds")
	}
	for _, k := range allKinds {
		if !seen[k] && k != stopParent { // which is a workload, not a fault of a round
			t.Errorf("there was no %s in %d rounds", k, len(allKinds))
		}
	}
}

func TestChosenKinds(t *testing.T) {
	for text, want := range map[string]int{
		"": len(allKinds), "system": 1, "system,copies": 2, "-system,-copies": len(allKinds) - 2,
		"nonsense": -1, "system,-copies": -1,
	} {
		got, err := chosenKinds(text, allKinds)
		if (err != nil) != (want < 0) || err == nil && len(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
