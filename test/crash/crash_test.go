package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/client"
)

// run is the state of one test.
type run struct {
	t       *testing.T
	dir     string                      // of everything; also marks the processes
	data    string                      // data directory of the server
	backing string                      // the same, past the disk that fails
	up      func(data string) *exec.Cmd // starts a server in another way than launch does; nil for none
	planner *planner
	history *history
	judge   *judge

	disk     *disk
	pauses   pauses
	clock    clockwork
	proxies  []*proxy
	trouble  atomic.Int64 // for the proxies
	answered atomic.Int64 // how many answers met trouble

	mu         sync.Mutex
	server     *server
	wrong      error // the first violation that a goroutine has found
	background sync.WaitGroup

	counts map[kind]int
	ends   map[ending]int
	ended  int // servers that a failing disk ended
	slow   int // servers that gave up starting because the disk was slow
	rounds int
}

var uidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func setting(t *testing.T, name string, missing uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return missing
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// settleEvery is after how many rounds everything is deleted and must end.
const settleEvery = 40

// spec: DEL-13, NODE-2, DEL-10, SAFE-1, SAFE-2, SAFE-4, SAFE-5, SAFE-6
func TestCrash(t *testing.T) {
	kinds, err := chosenKinds(os.Getenv("MONOPLANE_CRASH_KINDS"), allKinds)
	if err != nil {
		t.Fatalf("MONOPLANE_CRASH_KINDS: %v", err)
	}
	kinds = possible(t, kinds)
	torment(t, kinds, len(kinds))
}

// possible leaves out what the machine does not let the test do.
func possible(t *testing.T, kinds []kind) []kind {
	t.Helper()
	kinds = slices.Clone(kinds)
	if err := needDisk(); err != nil {
		t.Logf("left out: %s and %s: %v", slowDisk, failDisk, err)
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return k == slowDisk || k == failDisk })
	}
	if err := needClock(); err != nil {
		t.Logf("left out: %s: %v", clock, err)
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return k == clock })
	}
	return kinds
}

// torment lives through rounds of faults of these kinds; how many, how long, and which can be set in the environment.
func torment(t *testing.T, kinds []kind, missing int) {
	t.Helper()
	rounds := int(setting(t, "MONOPLANE_CRASH_ROUNDS", uint64(missing)))
	var length time.Duration
	if text := os.Getenv("MONOPLANE_CRASH_DURATION"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("MONOPLANE_CRASH_DURATION: %v", err)
		}
	}
	seed := setting(t, "MONOPLANE_CRASH_SEED", 0)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("MONOPLANE_CRASH_SEED=%d MONOPLANE_CRASH_KINDS=%s", seed, join(kinds))
	r := newRun(t, newPlanner(seed, kinds, length > 0 || rounds >= 200))
	began := time.Now()
	for ; r.rounds < rounds || time.Since(began) < length; r.rounds++ {
		plan := r.planner.next()
		if err := r.round(plan); err != nil {
			t.Fatalf("MONOPLANE_CRASH_SEED=%d, round %d %+v: %v\n%s", seed, r.rounds, plan, err, r.evidence())
		}
		if r.rounds%settleEvery == settleEvery-1 {
			if err := r.settle(); err != nil {
				t.Fatalf("MONOPLANE_CRASH_SEED=%d, after round %d: %v\n%s", seed, r.rounds, err, r.evidence())
			}
			took := time.Since(began).Round(time.Second)
			t.Logf("%d rounds in %v, %d containers started, no violation", r.rounds+1, took, r.judge.starts)
		}
	}
	if err := r.settle(); err != nil {
		t.Fatalf("MONOPLANE_CRASH_SEED=%d, at the end: %v\n%s", seed, err, r.evidence())
	}
	t.Logf("in %v:\n%s", time.Since(began).Round(time.Second), r.table())
}

func join(kinds []kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ",")
}

func newRun(t *testing.T, p *planner) *run {
	t.Helper()
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	clean := startGuard(t, dir)
	h := &history{pods: map[string]*fate{}}
	r := &run{
		t: t, dir: dir, data: filepath.Join(dir, "disk"), planner: p, history: h, judge: newJudge(h),
		disk: &disk{}, counts: map[kind]int{}, ends: map[ending]int{},
	}
	r.backing = r.data
	t.Cleanup(func() {
		r.heal()
		clean() // ends the processes too
		for _, p := range r.proxies {
			p.close()
		}
		r.background.Wait()
	})
	if err := os.Mkdir(r.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if p.has(slowDisk) || p.has(failDisk) {
		r.backing = filepath.Join(dir, "backing")
		if err := os.Mkdir(r.backing, 0o700); err != nil {
			t.Fatal(err)
		}
		if r.disk, err = mountDisk(r.data, r.backing); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *run) current() *server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

func (r *run) launch(limit int) *server {
	s := r.launchOn(r.data, limit)
	r.mu.Lock()
	r.server = s
	r.mu.Unlock()
	return s
}

func (r *run) launchOn(data string, limit int) *server {
	if r.up != nil {
		return begin(r.t, r.dir, r.up(data))
	}
	return launch(r.t, r.dir, data, limit)
}

// start starts the server and waits until it is ready. One that gives up because the disk is too slow at the moment is
// started again, as an operator's service manager would.
func (r *run) start(limit int) (*server, error) {
	for attempt := 1; ; attempt++ {
		s := r.launch(limit)
		err := s.untilReady()
		said := s.stderr.String()
		slow := strings.Contains(said, "not ready in time") || strings.Contains(said, "took too long")
		if err == nil || !slow || attempt == 3 {
			return s, err
		}
		r.slow++
	}
}

// violated keeps the first violation.
func (r *run) violated(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong == nil {
		r.wrong = err
	}
}

func (r *run) violation() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong
}

// round is one life of the server.
func (r *run) round(plan round) error {
	rng := rand.New(rand.NewPCG(r.planner.rng.Uint64(), 2))
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	beside, err := r.before(ctx, plan, plan.Early)
	if err != nil {
		return err
	}
	limit := 0
	if plan.Small {
		limit = smallTable
	}
	s, err := r.start(limit)
	if err != nil {
		return err
	}
	c, err := dial(ctx, r.backing)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := r.verify(ctx, c); err != nil {
		return err
	}
	beside.start()
	diskFailed := r.disk.failed.Load()
	loading, unload := context.WithCancel(ctx)
	defer unload()
	wait := r.load(loading, c, rng)
	r.background.Go(func() { r.observe(loading, c) })
	r.live(loading, c, s, plan)
	byItself := s.ended()
	if plan.Force && !byItself {
		r.forceAll(ctx, c)
	}
	err = r.end(ctx, s, plan)
	unload()
	wait()
	err = errors.Join(err, beside.end(ctx))
	r.after()
	if byItself {
		if r.disk.failed.Load() == diskFailed {
			return fmt.Errorf("the server ended by itself")
		}
		r.ended++
	}
	return errors.Join(r.violation(), err)
}

// before does what a round wants before its server starts: a server is killed so long after its start, there is a copy
// of the data, and proxies are before the shims.
func (r *run) before(ctx context.Context, plan round, early time.Duration) (*copied, error) {
	if plan.Early > 0 {
		for _, f := range plan.Faults { // it may meet a sick disk while it starts
			if f.Kind == slowDisk || f.Kind == failDisk {
				_ = r.inject(ctx, nil, nil, f)
			}
		}
		s := r.launch(0)
		pause(ctx, early)
		s.kill()
		r.disk.heal()
		r.counts[killServer]++
	}
	var beside *copied
	if plan.Copied {
		var err error
		if beside, err = r.copyData(); err != nil {
			return nil, err
		}
	}
	return beside, r.interposeAll(plan)
}

// after ends what is left of a round's faults, but for pauses.
func (r *run) after() {
	r.disk.heal()
	r.trouble.Store(0)
	r.background.Wait()
	for _, p := range r.proxies {
		p.close()
	}
	r.proxies = nil
}

// live lets the load go on for the round's time, and injects its faults.
func (r *run) live(ctx context.Context, c *client.Client, s *server, plan round) {
	began := time.Now()
	over := time.After(plan.Life)
	for _, f := range plan.Faults {
		select {
		case <-time.After(f.At - time.Since(began)):
		case <-s.exited:
			return
		}
		if err := r.inject(ctx, c, s, f); err != nil {
			r.violated(err)
		}
		switch f.Kind {
		case slowDisk, failDisk, answers:
			r.background.Go(func() {
				pause(ctx, f.For)
				if f.Kind == answers {
					r.trouble.Store(0)
				} else {
					r.disk.heal()
				}
			})
		}
	}
	select {
	case <-over:
	case <-s.exited:
	}
}

// interposeAll puts a proxy before each shim when the plan wants trouble with answers. The server is dead.
func (r *run) interposeAll(plan round) error {
	i := slices.IndexFunc(plan.Faults, func(f fault) bool { return f.Kind == answers })
	if i < 0 {
		return nil
	}
	all, err := shims(r.data)
	if err != nil {
		return err
	}
	for _, s := range all {
		// Past the disk that fails there is no such socket: the kernel finds it by the file that the shim has made.
		p, err := interpose(s.dir, 3*time.Second, &r.trouble, &r.answered)
		if errors.Is(err, os.ErrNotExist) {
			continue // a shim that has no socket yet, or is going
		}
		if err != nil {
			return err
		}
		r.proxies = append(r.proxies, p)
	}
	if plan.Faults[i].Pick%2 == 0 { // from the first greeting on
		r.trouble.Store(4)
	}
	return nil
}

// end ends the server as planned.
func (r *run) end(ctx context.Context, s *server, plan round) error {
	if s.ended() {
		return nil
	}
	r.ends[plan.End]++
	if plan.End == byKill {
		r.counts[killServer]++
		s.kill()
		return nil
	}
	r.counts[endServer]++
	r.pauses.end(s.process)
	if plan.End == byTerm {
		_ = s.signal(unix.SIGTERM) // here and below: a server that ended by itself is noticed by its exit
		return r.untilEnded(s)
	}
	r.history.interrupt()
	defer r.history.interrupted()
	_ = s.signal(unix.SIGINT)
	if plan.End == byInterrupt2 {
		pause(ctx, plan.Again)
		_ = s.signal(unix.SIGINT)
		return r.untilEnded(s)
	}
	if err := r.untilEnded(s); err != nil {
		return err
	}
	left, err := workloads(r.dir)
	if strings.Contains(s.stdout.String(), "Leaving the pods") {
		return err // it says so
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("after Ctrl-C processes %v are left", left)
	}
	return err
}

func (r *run) untilEnded(s *server) error {
	select {
	case <-s.exited:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the server does not end after a signal: %s", s.stacks())
	}
}

// eventually calls f until it returns nil or ctx ends.
func eventually(ctx context.Context, f func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
