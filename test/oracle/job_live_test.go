//go:build kubernetes

package oracle

import (
	"context"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	batch1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/registry/batch/job"

	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/rules/indexes"
)

//go:linkname matchTheirs k8s.io/kubernetes/pkg/controller/job.matchPodFailurePolicy
func matchTheirs(*batch1.PodFailurePolicy, *v1.Pod) (*string, bool, *batch1.PodFailurePolicyAction)

//go:linkname endedTheirs k8s.io/kubernetes/pkg/controller/job.getFinishedTime
func endedTheirs(*v1.Pod) time.Time

// interval is a row of indexes, as Kubernetes' controller has it.
type interval struct{ first, last int }

//go:linkname readTheirs k8s.io/kubernetes/pkg/controller/job.parseIndexesFromString
func readTheirs(logger klog.Logger, text string, completions int) []interval

//go:linkname metTheirs k8s.io/kubernetes/pkg/controller/job.matchSuccessPolicy
func metTheirs(klog.Logger, *batch1.SuccessPolicy, int32, []interval) (string, bool)

func theirNewJob(t testing.TB, k *batch1.Job) faults {
	now := internal(t, k, &batch.Job{})
	job.Strategy.PrepareForCreate(context.Background(), now)
	return theirFaults(job.Strategy.Validate(context.Background(), now))
}

func theirFailedPod(_ testing.TB, policy *batch1.PodFailurePolicy, p *v1.Pod) failedPod {
	message, counts, action := matchTheirs(policy, p)
	out := failedPod{Verdict: plan.Verdict{Counts: counts}, Ended: endedTheirs(p)}
	if message != nil {
		out.Message = *message
	}
	if action != nil {
		out.Action = string(*action)
	}
	return out
}

func theirIndexes(_ testing.TB, text string, completions int32, policy *batch1.SuccessPolicy) (out readIndexes) {
	all := readTheirs(klog.Logger{}, text, int(completions))
	for _, i := range all {
		out.Intervals = append(out.Intervals, indexes.Interval{First: int32(i.first), Last: int32(i.last)})
	}
	out.Message, out.Met = metTheirs(klog.Logger{}, policy, completions, all)
	return out
}

func theirJob(t testing.TB, k, old *batch1.Job) faults {
	now, was := internal(t, k, &batch.Job{}), internal(t, old, &batch.Job{})
	return theirFaults(job.Strategy.ValidateUpdate(context.Background(), now, was))
}

func theirJobStatus(t testing.TB, k, old *batch1.Job) faults {
	now, was := internal(t, k, &batch.Job{}), internal(t, old, &batch.Job{})
	return theirFaults(job.StatusStrategy.ValidateUpdate(context.Background(), now, was))
}
