package job_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/watchcache"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/job"
	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/controllers/podgc"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/phase"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

var (
	seed      = flag.Uint64("job-seed", 0, "the history to play; 0 plays others each time")
	histories = flag.Int("job-histories", 8, "how many histories are played")
)

// history plays a Job through all that can go wrong, and keeps its own account of the pods.
type history struct {
	*world

	mu sync.Mutex
	r  *rand.Rand
	// crash ends the controllers that run now.
	crash []func()
	// calm ends all faults; two says that two controllers work at once.
	calm, two bool

	// ended are the pods that had the finalizer when they ended or their deletion began, let go those that lost it
	// while they ran.
	ended, letGo map[string]bool
	// noted are the pods that the status names, in which list; counted are those that have left it.
	noted, counted map[string]string
	faults         []string
}

// Whatever users, failing calls, lost answers, cut watches, a second controller and crashes at any write do at the
// same time: every pod that ended is counted once, and no other is.
func TestEveryPodIsCountedOnce(t *testing.T) {
	for i := range *histories {
		s := *seed
		if s == 0 {
			s = uint64(time.Now().UnixNano()) + uint64(i)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("play it again with -job-seed=%d -job-histories=1", s)
				}
			}()
			synctest.Test(t, func(t *testing.T) { play(t, s) })
		})
	}
}

func play(t *testing.T, seed uint64) {
	h := &history{
		r: rand.New(rand.NewPCG(seed, 1)), ended: map[string]bool{}, letGo: map[string]bool{},
		noted: map[string]string{}, counted: map[string]string{},
	}
	within := func(d time.Duration) time.Duration { return time.Duration(h.int(int(d))) }
	nodes := &controllertest.Nodes{
		StartsIn: func(*corev1.Pod) time.Duration { return within(2 * time.Second) },
		StopsIn:  func(*corev1.Pod) time.Duration { return within(20 * time.Second) },
		Ends: func(*corev1.Pod) (string, time.Duration) {
			return []string{"Succeeded", "Succeeded", "Failed"}[h.int(3)], within(20 * time.Second)
		},
	}
	w := &world{T: t, server: apitest.Start(t), nodes: nodes}
	w.c, h.world = w.server.Admin(), w
	w.server.Namespaces(t, "ns")
	ctx, cancel := context.WithCancel(t.Context())
	nodes.Server, nodes.Names = w.server, []string{"n1", "n2", "n3"}
	wait, err := nodes.Start(ctx)
	w.must(err)
	var g sync.WaitGroup
	stop := h.watch()
	h.server.React(h.before)
	h.server.After(h.after)
	h.two = h.int(2) == 0
	g.Go(func() { h.run(ctx) })
	if h.two {
		g.Go(func() { h.run(ctx) })
	}
	// More than can fail: each pod that fails costs a pause of up to ten minutes.
	h.create(func(s *batchv1.JobSpec) {
		n, p := int32(1+h.int(12)), int32(1+h.int(6)) //nolint:gosec // small
		s.Completions, s.Parallelism, s.BackoffLimit = &n, &p, proto.Int32(1000)
		switch h.int(4) {
		case 0:
			indexed(s, n, p)
		case 1:
			indexed(s, n, p)
			s.BackoffLimitPerIndex = proto.Int32(1000)
		}
		if h.int(3) == 0 {
			s.PodReplacementPolicy = proto.String(jobs.Failed)
		}
	})
	for range 20 + h.int(40) {
		time.Sleep(within(10 * time.Second))
		h.disturb()
	}
	h.mu.Lock()
	h.calm = true
	h.mu.Unlock()
	h.update(func(s *batchv1.JobSpec) { s.Suspend = proto.Bool(false) })
	j := h.ends()
	time.Sleep(time.Hour) // whatever is still to come comes
	h.untracked()
	cancel()
	wait()
	g.Wait()
	synctest.Wait()
	stop()
	h.check(j)
}

func (h *history) int(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.r.IntN(n)
}

// chance is 1 in n, while there is no calm.
func (h *history) chance(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.calm && h.r.IntN(n) == 0
}

// written says whether a method is one by which the controller changes something.
func written(method string) bool {
	switch method {
	case corev1rpc.Pods_Create_FullMethodName, corev1rpc.Pods_Patch_FullMethodName, corev1rpc.Pods_Delete_FullMethodName,
		batchv1rpc.Jobs_UpdateStatus_FullMethodName:
		return true
	default:
		return false
	}
}

func (h *history) before(_ context.Context, method string, _ any) error {
	if !written(method) {
		return nil
	}
	// As on any machine, so that time passes while two controllers contradict each other, one of which sees old pods.
	time.Sleep(time.Millisecond)
	if h.chance(40) {
		return apierrors.New(apierrors.ServiceUnavailable, "not now")
	}
	return nil
}

// after loses answers, and ends the controllers when they have just changed something.
func (h *history) after(_ context.Context, method string, _, _ any) error {
	if !written(method) {
		return nil
	}
	if h.chance(30) {
		h.mu.Lock()
		crash := h.crash
		h.crash = nil
		h.mu.Unlock()
		for _, end := range crash {
			end()
		}
		return apierrors.New(apierrors.ServiceUnavailable, "the answer is lost")
	}
	if h.chance(40) {
		return apierrors.New(apierrors.ServiceUnavailable, "the answer is lost")
	}
	return nil
}

// run runs a controller, and another one after it when it crashes.
func (h *history) run(ctx context.Context) {
	for ctx.Err() == nil {
		// What a controller sees of pods and of Jobs is old, of each as old as it happens to be.
		api := h.server.Controller(controller.SharedRole().Name)
		api.Pods = latePods{api.Pods, h}
		api.Jobs = lateJobs{api.Jobs, h}
		shared := controller.NewShared(api, nil)
		c, err := job.New(job.Config{Client: h.server.Controller("job"), Shared: shared})
		if err != nil {
			h.Error(err)
			return
		}
		// It ends what is deleted before it is bound.
		collector, err := podgc.New(podgc.Config{Client: h.server.Controller("podgc"), Shared: shared})
		if err != nil {
			h.Error(err)
			return
		}
		life, end := context.WithCancel(ctx)
		h.mu.Lock()
		h.crash = append(h.crash, end)
		h.mu.Unlock()
		if err := controllertest.Run(life, shared, c, collector); !errors.Is(err, context.Canceled) {
			h.Errorf("Run ended with %v", err)
		}
		end()
	}
}

// latePods and lateJobs deliver their events late.
type (
	latePods struct {
		corev1rpc.PodsClient

		h *history
	}
	lateJobs struct {
		batchv1rpc.JobsClient

		h *history
	}
	late[T any] struct {
		grpc.ServerStreamingClient[T]

		h *history
	}
)

func (c latePods) Watch(
	ctx context.Context, req *metav1.WatchRequest, opts ...grpc.CallOption,
) (grpc.ServerStreamingClient[corev1rpc.PodEvents], error) {
	s, err := c.PodsClient.Watch(ctx, req, opts...)
	return late[corev1rpc.PodEvents]{s, c.h}, err
}

func (c lateJobs) Watch(
	ctx context.Context, req *metav1.WatchRequest, opts ...grpc.CallOption,
) (grpc.ServerStreamingClient[batchv1rpc.JobEvents], error) {
	s, err := c.JobsClient.Watch(ctx, req, opts...)
	return late[batchv1rpc.JobEvents]{s, c.h}, err
}

func (s late[T]) Recv() (*T, error) {
	batch, err := s.ServerStreamingClient.Recv()
	if s.h.chance(2) {
		time.Sleep(time.Duration(s.h.int(int(2 * time.Second))))
	}
	return batch, err
}

// disturb does something that somebody may do at any time.
func (h *history) disturb() {
	switch h.int(8) {
	case 0, 1, 2:
		pods := h.pods()
		if len(pods) == 0 {
			return
		}
		m := pods[h.int(len(pods))].GetMetadata()
		opts := &metav1.DeleteOptions{}
		if h.int(3) == 0 {
			opts.GracePeriodSeconds = proto.Int64(0)
		}
		_, err := h.c.Pods.Delete(h.Context(), &metav1.DeleteRequest{
			Namespace: "ns", Name: m.GetName(), Options: opts,
		})
		if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.ServiceUnavailable) {
			h.must(err)
		}
	case 3:
		if !jobs.Finished(h.get().GetStatus()) {
			h.update(func(s *batchv1.JobSpec) { s.Suspend = proto.Bool(!s.GetSuspend()) })
		}
	case 4:
		n := int32(h.int(7)) //nolint:gosec // small
		h.update(func(s *batchv1.JobSpec) { s.Parallelism = &n })
		if n == 0 {
			time.Sleep(10 * time.Second)
			h.update(func(s *batchv1.JobSpec) { s.Parallelism = proto.Int32(3) })
		}
	case 5:
		h.server.Cut()
	}
}

// watch keeps the account: it sees every change, whatever happens to other watches.
func (h *history) watch() (stop func()) {
	var g sync.WaitGroup
	var all []*watchcache.Watcher
	for _, kind := range []*object.Kind{corev1.PodKind, batchv1.JobKind} {
		w, err := h.server.Store.Watch(context.Background(), kind, store.WatchOptions{SendInitialEvents: true})
		h.must(err)
		all = append(all, w)
		g.Go(func() {
			last := map[string]object.Object{}
			for {
				events, err := w.Next(context.Background())
				if errors.Is(err, watchcache.ErrStopped) {
					return
				}
				if err != nil {
					h.Error(err)
					return
				}
				for _, e := range events {
					h.see(last, e)
				}
			}
		})
	}
	return func() {
		for _, w := range all {
			w.Stop()
		}
		g.Wait()
	}
}

// see takes one change into the account; last is the objects as they were before it, by uid.
func (h *history) see(last map[string]object.Object, e object.Event) {
	if e.Type != object.Added && e.Type != object.Modified && e.Type != object.Deleted {
		return
	}
	uid := e.Object.GetMetadata().GetUid()
	old := last[uid]
	last[uid] = e.Object
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := e.Object.(type) {
	case *corev1.Pod:
		was, _ := old.(*corev1.Pod)
		h.pod(was, o, e.Type == object.Deleted)
	case *batchv1.Job:
		was, _ := old.(*batchv1.Job)
		h.job(was, o)
	}
}

func (h *history) pod(old, p *corev1.Pod, gone bool) {
	over := func(p *corev1.Pod) bool { return phase.Terminal(p) || availability.Terminating(p) }
	if plan.Tracked(p) && phase.Terminal(p) {
		h.ended[p.GetMetadata().GetUid()] = true
	}
	if old != nil && plan.Tracked(old) && (gone || !plan.Tracked(p)) && !over(old) {
		h.letGo[old.GetMetadata().GetUid()] = true
	}
}

func (h *history) job(old, j *batchv1.Job) {
	now, s := map[string]string{}, j.GetStatus()
	for _, uid := range s.GetUncountedTerminatedPods().GetSucceeded() {
		now[uid] = "succeeded"
	}
	for _, uid := range s.GetUncountedTerminatedPods().GetFailed() {
		now[uid] = "failed"
	}
	gone := map[string]int32{}
	for uid, list := range h.noted {
		if now[uid] == "" {
			h.counted[uid] = list
			gone[list]++
		} else if now[uid] != list {
			h.fault("pod %s went from %s to %s", uid, list, now[uid])
		}
	}
	for uid := range now {
		if h.counted[uid] != "" {
			h.fault("pod %s is counted again", uid)
		}
	}
	h.noted = now
	was := old.GetStatus()
	if d := s.GetFailed() - was.GetFailed(); d != gone["failed"] {
		h.fault("%d failed pods were counted, and %d are noted no more", d, gone["failed"])
	}
	if d := s.GetSucceeded() - was.GetSucceeded(); !jobs.IsIndexed(j.GetSpec()) && d != gone["succeeded"] {
		h.fault("%d succeeded pods were counted, and %d are noted no more", d, gone["succeeded"])
	}
	if jobs.IsIndexed(j.GetSpec()) {
		done, err := indexes.Parse(s.GetCompletedIndexes(), j.GetSpec().GetCompletions())
		if err != nil || done.Len() != s.GetSucceeded() {
			h.fault("%d indexes succeeded, which are %q: %v", s.GetSucceeded(), s.GetCompletedIndexes(), err)
		}
	}
}

func (h *history) fault(format string, args ...any) {
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// check compares what the Job says at its end with the account.
func (h *history) check(j *batchv1.Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.faults {
		h.Error(f)
	}
	n := map[string]int32{}
	for uid, list := range h.counted {
		n[list]++
		if h.letGo[uid] {
			h.Errorf("pod %s counts as %s, and had lost its finalizer before it ended", uid, list)
		}
	}
	for uid := range h.ended {
		// Of two controllers one may end the Job while the other makes a pod too many.
		if h.counted[uid] == "" && !h.two && !jobs.IsIndexed(j.GetSpec()) {
			h.Errorf("pod %s has ended, and was never counted", uid)
		}
	}
	s := object.Clone(j.GetStatus())
	if s.GetFailed() != n["failed"] || !jobs.IsIndexed(j.GetSpec()) && s.GetSucceeded() != n["succeeded"] {
		h.Errorf("the status says %s; counted were %v", sum(j), n)
	}
	if s.GetSucceeded() < j.GetSpec().GetCompletions() || !jobs.Has(s, jobs.Complete) {
		h.Errorf("the Job ended with %s of %d", sum(j), j.GetSpec().GetCompletions())
	}
}
