package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/podstatus"
	"monoplane.dev/codec/value"
	"monoplane.dev/scheduler/framework"
)

// reporter writes PodScheduled=False to pods that fit nowhere (spec: SCHED-6), and the node on which room is made for
// them (spec: PREEMPT-2), off the decision loop. Of several reports about one pod only the newest is written.
type reporter struct {
	pods   corev1rpc.PodsClient
	logger *slog.Logger

	mu    sync.Mutex
	todo  map[string]report // by uid
	order []string          // uids in the order they came; may name some twice or that are done
	// writing are the pods that a report is being written about: a newer one waits for it, lest the older one win.
	writing map[string]struct{}
	signal  chan struct{}
}

type report struct {
	pod *framework.PodInfo
	// message goes into the condition; "" leaves it.
	message string
	// nominated is the new status.nominatedNodeName; nil leaves it.
	nominated *string
}

// fieldManager is who writes, in what the server keeps about writes.
const fieldManager = "scheduler"

// reportWorkers is how many reports are written at once.
const reportWorkers = 4

func newReporter(pods corev1rpc.PodsClient, logger *slog.Logger) *reporter {
	return &reporter{pods: pods, logger: logger, todo: map[string]report{}, writing: map[string]struct{}{},
		signal: make(chan struct{}, reportWorkers)}
}

// unschedulable notes why a pod fits nowhere.
func (r *reporter) unschedulable(pod *framework.PodInfo, message string) {
	c := podstatus.Condition(pod.Pod.GetStatus(), "PodScheduled")
	if c.GetStatus() == "False" && c.GetReason() == "Unschedulable" && c.GetMessage() == message {
		message = "" // it says so already; an older report that waits must not win
	}
	r.note(pod, func(p *report) { p.message = message })
}

// nominated notes on which node room is made for a pod, "" for none.
func (r *reporter) nominated(pod *framework.PodInfo, node string) {
	r.note(pod, func(p *report) { p.nominated = &node })
}

// note changes what is to be written about a pod.
func (r *reporter) note(pod *framework.PodInfo, change func(*report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, waits := r.todo[pod.UID]
	p.pod = pod
	change(&p)
	if p.message == "" && p.nominated == nil {
		delete(r.todo, pod.UID)
		return
	}
	if !waits {
		r.order = append(r.order, pod.UID)
	}
	r.todo[pod.UID] = p
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// forget drops what has not been written about a pod.
func (r *reporter) forget(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.todo, uid)
}

func (r *reporter) next() (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.order) > 0 {
		uid := r.order[0]
		r.order = r.order[1:]
		_, busy := r.writing[uid]
		if p, ok := r.todo[uid]; ok && !busy {
			delete(r.todo, uid)
			r.writing[uid] = struct{}{}
			return p, true
		}
	}
	r.order = nil
	return report{}, false
}

// done says that a report has been written.
func (r *reporter) done(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.writing, uid)
	if _, waits := r.todo[uid]; waits {
		r.order = append(r.order, uid)
	}
}

// run writes reports until ctx ends.
func (r *reporter) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range reportWorkers {
		workers.Go(func() {
			for ctx.Err() == nil {
				if p, ok := r.next(); ok {
					r.write(ctx, p)
					r.done(p.pod.UID)
					continue
				}
				select {
				case <-r.signal:
				case <-ctx.Done():
				}
			}
		})
	}
	workers.Wait()
	return ctx.Err()
}

// write changes the status by compare-and-swap, so that a late report never overwrites that the pod was scheduled.
func (r *reporter) write(ctx context.Context, p report) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := podstatus.Write(ctx, r.pods, fieldManager, p.pod.Pod, func(now *corev1.Pod, s *corev1.PodStatus) bool {
		if now.GetSpec().GetNodeName() != "" {
			return false
		}
		if p.message != "" {
			podstatus.SetCondition(s, unschedulable(now, p.message))
		}
		if p.nominated != nil {
			s.NominatedNodeName = *p.nominated
		}
		return true
	})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) &&
		ctx.Err() == nil {
		// The next try will report again.
		r.logger.Warn("cannot write why a pod is unschedulable", "pod", p.pod.Key.String(), "uid", p.pod.UID, "error", err)
	}
}

// unschedulable is the condition of a pod that fits nowhere.
func unschedulable(pod *corev1.Pod, message string) *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: message,
		LastTransitionTime: value.Time(time.Now()), ObservedGeneration: pod.GetMetadata().GetGeneration(),
	}
}
