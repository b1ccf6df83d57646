package plan

import (
	"slices"
	"strconv"

	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/phase"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// none is the index of a pod that has no index of its Job.
const none int32 = -1

// fact is what counts of a pod.
type fact struct {
	*corev1.Pod

	uid string
	// index is below completions, or none. It is none for all pods of a Job without indexes, and for those that are
	// over and done with.
	index int32
	// tracked says that the pod has the finalizer: its end is not counted yet.
	tracked                                    bool
	active, terminating, ready, success, fails bool
}

// Tracked says whether a pod has the finalizer that keeps it until its end is counted.
func Tracked(p *corev1.Pod) bool {
	return slices.Contains(p.GetMetadata().GetFinalizers(), jobs.Tracking)
}

// factsOf looks at the pods of a Job. Those in released have lost their finalizer, whatever they look like.
func factsOf(job *batchv1.Job, pods []*corev1.Pod, released map[string]bool) []fact {
	facts := make([]fact, len(pods))
	s := job.GetSpec()
	indexed, lenient := jobs.IsIndexed(s), !onlyEnded(s)
	for i, p := range pods {
		f := &facts[i]
		uid := p.GetMetadata().GetUid()
		*f = fact{
			Pod: p, uid: uid, index: none, tracked: Tracked(p) && !released[uid],
			active: availability.Active(p), terminating: availability.Terminating(p),
			success: p.GetStatus().GetPhase() == phase.Succeeded, fails: p.GetStatus().GetPhase() == phase.Failed,
		}
		f.ready = f.active && availability.Ready(p)
		// A pod that is deleted while it runs has failed, unless one waits for its end: it may never say how it ended.
		f.fails = f.fails || f.terminating && lenient
		if indexed && (f.tracked || f.active || f.terminating) {
			if f.index = indexOf(p); f.index >= s.GetCompletions() {
				f.index = none
			}
		}
	}
	return facts
}

// onlyEnded says whether pods are replaced only when they have ended, not while they are being deleted.
func onlyEnded(s *batchv1.JobSpec) bool {
	return s.GetPodReplacementPolicy() == jobs.Failed || s.GetPodFailurePolicy() != nil
}

// indexOf returns the index of a pod, none without one.
func indexOf(p *corev1.Pod) int32 {
	text, ok := p.GetMetadata().GetAnnotations()[jobs.Index]
	if !ok {
		return none
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return none
	}
	return int32(n)
}

// number returns what an annotation counts; 0 for what is no count.
func number(p *corev1.Pod, annotation string) int32 {
	n, err := strconv.ParseInt(p.GetMetadata().GetAnnotations()[annotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

// failures returns how many pods of the index failed before p, whether they counted or not.
func failures(p *corev1.Pod) int64 {
	return int64(number(p, jobs.Failures)) + int64(number(p, jobs.Ignored))
}

// indexesOf returns the indexes of pods.
func indexesOf(facts []fact, which func(*fact) bool) indexes.Set {
	var list []int32
	for i := range facts {
		if f := &facts[i]; f.index != none && which(f) {
			list = append(list, f.index)
		}
	}
	return indexes.Of(list)
}
