package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/scheduler/framework"
)

// reporter writes PodScheduled=False to pods that fit nowhere (spec: SCHED-6), off the decision loop. Of several
// messages about one pod only the newest is written.
type reporter struct {
	pods   corev1.PodsClient
	logger *slog.Logger

	mu     sync.Mutex
	todo   map[string]report // by uid
	order  []string          // uids in the order they came; may name some twice or that are done
	signal chan struct{}
}

type report struct {
	pod     *framework.PodInfo
	message string
}

// reportWorkers is how many reports are written at once.
const reportWorkers = 4

func newReporter(pods corev1.PodsClient, logger *slog.Logger) *reporter {
	return &reporter{pods: pods, logger: logger, todo: map[string]report{}, signal: make(chan struct{}, reportWorkers)}
}

// unschedulable notes why a pod fits nowhere.
func (r *reporter) unschedulable(pod *framework.PodInfo, message string) {
	if c := condition(pod.Pod, "PodScheduled"); c.GetStatus() == "False" && c.GetReason() == "Unschedulable" && c.GetMessage() == message {
		r.forget(pod.UID) // it says so already; an older report that waits must not win
		return
	}
	r.mu.Lock()
	if _, ok := r.todo[pod.UID]; !ok {
		r.order = append(r.order, pod.UID)
	}
	r.todo[pod.UID] = report{pod, message}
	r.mu.Unlock()
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
		if p, ok := r.todo[uid]; ok {
			delete(r.todo, uid)
			return p, true
		}
	}
	r.order = nil
	return report{}, false
}

// run writes reports until ctx ends.
func (r *reporter) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range reportWorkers {
		workers.Go(func() {
			for ctx.Err() == nil {
				if p, ok := r.next(); ok {
					r.write(ctx, p)
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

// write patches the condition by compare-and-swap, so that a late report never overwrites that the pod was scheduled.
func (r *reporter) write(ctx context.Context, p report) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	pod := p.pod.Pod
	for range 5 {
		_, err := r.pods.PatchStatus(ctx, &metav1.PatchRequest{
			Namespace: p.pod.Key.Namespace, Name: p.pod.Key.Name,
			Patch: unschedulablePatch(pod, p.message), PatchType: "application/strategic-merge-patch+json", FieldManager: "scheduler",
		})
		if err == nil || apierrors.Is(err, apierrors.NotFound) || ctx.Err() != nil {
			return
		}
		if !apierrors.Is(err, apierrors.Conflict) {
			// The next try will report again.
			r.logger.Warn("cannot write why a pod is unschedulable", "pod", p.pod.Key.String(), "uid", p.pod.UID, "error", err)
			return
		}
		pod, err = r.pods.Get(ctx, &metav1.GetRequest{Namespace: p.pod.Key.Namespace, Name: p.pod.Key.Name})
		if err != nil || pod.GetMetadata().GetUid() != p.pod.UID || pod.GetSpec().GetNodeName() != "" {
			return
		}
	}
}

// unschedulablePatch names the pod's uid and resourceVersion, and the one condition.
func unschedulablePatch(pod *corev1.Pod, message string) []byte {
	m := &metav1.ObjectMeta{Uid: pod.GetMetadata().GetUid(), ResourceVersion: pod.GetMetadata().GetResourceVersion()}
	c := &corev1.PodCondition{
		Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: message,
		LastTransitionTime: value.Time(time.Now()), ObservedGeneration: pod.GetMetadata().GetGeneration(),
	}
	if old := condition(pod, c.GetType()); old.GetStatus() == c.GetStatus() {
		c.LastTransitionTime = old.GetLastTransitionTime()
	}
	b := m.AppendJSON([]byte(`{"metadata":`))
	b = append(b, `,"status":`...)
	b = (&corev1.PodStatus{Conditions: []*corev1.PodCondition{c}}).AppendJSON(b)
	return append(b, '}')
}

func condition(p *corev1.Pod, kind string) *corev1.PodCondition {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}
