package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

// names are the pods that come and go. The stubborn ones ignore the stop signal, so that their grace can be
// measured; only the forced ones are ever deleted by force.
var names = struct{ polite, stubborn, forced []string }{
	polite:   []string{"polite-a", "polite-b", "polite-c"},
	stubborn: []string{"stubborn-a", "stubborn-b"},
	forced:   []string{"forced-a", "forced-b"},
}

const stubbornGrace = 2 * time.Second

// run is the state of one test.
type run struct {
	t       *testing.T
	data    string // data directory of the server
	dir     string // where the workloads write
	history *history
	mu      sync.Mutex
	grace   map[string]time.Duration // of stubborn pods, by uid
}

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

// spec: DEL-13, NODE-2, DEL-10, SAFE-1, SAFE-2
func TestCrash(t *testing.T) {
	rounds := int(setting(t, "MONOPLANE_CRASH_ROUNDS", 12))
	seed := setting(t, "MONOPLANE_CRASH_SEED", 0)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("MONOPLANE_CRASH_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))

	r := &run{t: t, data: t.TempDir(), dir: t.TempDir(), history: &history{pods: map[string]*fate{}}, grace: map[string]time.Duration{}}
	t.Cleanup(r.killLeftovers)
	for round := range rounds {
		if rng.IntN(2) == 0 { // while it starts: it may get anywhere
			s := launch(t, r.data)
			time.Sleep(time.Duration(rng.Int64N(int64(150 * time.Millisecond))))
			s.kill(t)
		}
		s := startServer(t, r.data)
		r.verify(fmt.Sprintf("after crash %d", round))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		stop := r.load(ctx, rng)
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(1200 * time.Millisecond)))):
		case <-s.exited:
			t.Fatalf("the server ended by itself: %s", s.stderr)
		}
		s.kill(t)
		cancel()
		stop()
	}
	s := startServer(t, r.data)
	r.verify("at the end")
	r.deleteAll()
	s.kill(t)
}

// load begins to create and delete pods from several clients at once. The returned function waits until they
// have noticed the crash.
func (r *run) load(ctx context.Context, rng *rand.Rand) (wait func()) {
	c, err := dial(ctx, r.data)
	if err != nil {
		r.t.Fatal(err)
	}
	var wg sync.WaitGroup
	all := append(append(append([]string{}, names.polite...), names.stubborn...), names.forced...)
	for i, name := range all {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := r.step(ctx, c, own, name); apierrors.Is(err, apierrors.ServiceUnavailable) {
					return // the crash
				}
			}
		})
	}
	return func() { wg.Wait(); _ = c.Close() }
}

// step creates the pod of a name, or deletes it in one of several ways. Errors are for the caller to judge: what
// was acknowledged is in the history.
func (r *run) step(ctx context.Context, c *client.Client, rng *rand.Rand, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p, err := c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return r.create(ctx, c, name)
	}
	if err != nil {
		return err
	}
	if p.GetMetadata().GetDeletionTimestamp() != nil || rng.IntN(4) > 0 {
		select { // let it live for a while
		case <-time.After(time.Duration(rng.IntN(200)) * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
	return r.remove(ctx, c, p)
}

func (r *run) create(ctx context.Context, c *client.Client, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	grace := "exit"
	spec := int64(30)
	if stubborn(name) {
		grace = "600"
		spec = int64(stubbornGrace.Seconds())
	}
	p, err := c.Pods.Create(ctx, &corev1.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.PodSpec{
			TerminationGracePeriodSeconds: &spec,
			Containers: []*corev1.Container{{
				Name: "main", Image: "host", Command: []string{self},
				Env: []*corev1.EnvVar{
					{Name: envDir, Value: r.dir}, {Name: envName, Value: name}, {Name: envGrace, Value: grace},
					{Name: envUID, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
				},
			}},
		},
	}})
	if err != nil {
		return err
	}
	r.history.created(p)
	if stubborn(name) {
		r.mu.Lock()
		r.grace[p.GetMetadata().GetUid()] = stubbornGrace
		r.mu.Unlock()
	}
	return nil
}

func stubborn(name string) bool { return name[0] == 's' }

func (r *run) remove(ctx context.Context, c *client.Client, p *corev1.Pod) error {
	uid := p.GetMetadata().GetUid()
	req := &metav1.DeleteRequest{
		Namespace: "default", Name: p.GetMetadata().GetName(),
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	}
	forced := p.GetMetadata().GetName()[0] == 'f'
	if forced {
		zero := int64(0)
		req.GracePeriodSeconds = &zero
	}
	r.history.change(uid, func(f *fate) { f.deleting, f.forced = true, forced })
	_, err := c.Pods.Delete(ctx, req)
	if err == nil {
		r.history.change(uid, func(f *fate) { f.deleted = true })
	}
	return err
}

// verify checks what must hold after a restart.
func (r *run) verify(when string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	c, err := dial(ctx, r.data)
	if err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
	defer c.Close()
	list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
	if err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
	if err := r.history.check(list.GetItems()); err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
	if err := r.noStrangers(ctx, c); err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
	r.checkJournal(when)
}

func (r *run) checkJournal(when string) {
	r.t.Helper()
	// What ran before or after the journal was read has not ended in it.
	before, err := workloads(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	journal, err := readJournal(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	after, err := workloads(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	running := map[int]bool{}
	for _, found := range []map[string][]int{before, after} {
		for _, pids := range found {
			for _, pid := range pids {
				running[pid] = true
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := map[string]time.Duration{}
	for uid, g := range r.grace {
		if len(before[uid])+len(after[uid]) == 0 {
			ended[uid] = g
		}
	}
	// Forced names may overlap with their successors: that is what forcing means.
	var graceful []entry
	for _, e := range journal {
		if e.Name[0] != 'f' {
			graceful = append(graceful, e)
		}
	}
	if err := checkJournal(graceful, ended, running); err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
}

// noStrangers waits until no process runs whose pod does not exist. A ready node has dealt with those that it
// found (NODE-2); a pod that was forced after that gets a short grace.
func (r *run) noStrangers(ctx context.Context, c *client.Client) error {
	return eventually(ctx, func() error {
		running, err := workloads(r.dir)
		if err != nil {
			return err
		}
		list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
		if err != nil {
			return err
		}
		for _, p := range list.GetItems() {
			delete(running, p.GetMetadata().GetUid())
		}
		for uid, pids := range running {
			return fmt.Errorf("processes %v run for pod %s, which does not exist", pids, uid)
		}
		return nil
	})
}

// deleteAll deletes what is left and waits until every deletion has ended and no process runs.
func (r *run) deleteAll() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	c, err := dial(ctx, r.data)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Pods.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default"}); err != nil {
		r.t.Fatal(err)
	}
	err = eventually(ctx, func() error {
		list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
		if err == nil && len(list.GetItems()) > 0 {
			err = fmt.Errorf("%d deletions have not ended", len(list.GetItems()))
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	running, err := workloads(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(running) > 0 {
		r.t.Fatalf("processes are left: %v", running)
	}
	r.checkJournal("at the end")
}

// killLeftovers ends what a failed test has left behind.
func (r *run) killLeftovers() {
	running, err := workloads(r.dir)
	if err != nil {
		r.t.Error(err)
	}
	for _, pids := range running {
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may have ended
			}
		}
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
