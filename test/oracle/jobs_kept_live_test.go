//go:build kubernetes

package oracle

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe" // also for go:linkname

	"google.golang.org/protobuf/proto"
	batch1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1alpha2"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/rules/jobs"
)

// jobController returns Kubernetes' controller with a clock.
//
//go:linkname jobController k8s.io/kubernetes/pkg/controller/job.newControllerWithClock
func jobController(context.Context, clientset.Interface, clock.WithTicker, coreinformers.PodInformer,
	batchinformers.JobInformer, schedulinginformers.WorkloadInformer, schedulinginformers.PodGroupInformer,
) (*job.Controller, error)

// syncJob takes the Job with a key a step further.
//
//go:linkname syncJob k8s.io/kubernetes/pkg/controller/job.(*Controller).syncJob
func syncJob(c *job.Controller, ctx context.Context, key string) error

var errRefused = errors.New("refused")

// theirJobStep takes Kubernetes' controller a step further. It is a new one each time, which waits for nothing of
// before but has not forgotten how often pods have failed.
func theirJobStep(
	t testing.TB, past *course, j *batch1.Job, pods map[string]*v1.Pod, refused refused, now time.Time,
) (out jobAnswer) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	client := fake.NewClientset()
	f := informers.NewSharedInformerFactory(client, 0)
	out.Status = *j.Status.DeepCopy()
	taken := map[string]bool{}
	client.PrependReactor("*", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		switch a := a.(type) {
		case k8stesting.CreateActionImpl:
			p := a.GetObject().(*v1.Pod).DeepCopy()
			if refused.NoCreate {
				return true, nil, errRefused
			}
			out.Created = append(out.Created, p)
			return true, p, nil
		case k8stesting.PatchActionImpl:
			if refused.Kept[a.GetName()] {
				return true, nil, errRefused
			}
			taken[a.GetName()] = true
			return true, pods[a.GetName()].DeepCopy(), nil
		case k8stesting.DeleteActionImpl:
			out.Remove = append(out.Remove, a.GetName())
			return true, nil, nil
		case k8stesting.UpdateActionImpl:
			j := a.GetObject().(*batch1.Job).DeepCopy()
			if !proto.Equal(toldOf(t.(*testing.T), &j.Status), toldOf(t.(*testing.T), &out.Status)) {
				if refused.NoStatus {
					return true, nil, errRefused
				}
				out.Written = append(out.Written, *inOneOrder(&j.Status))
			}
			out.Status = *j.Status.DeepCopy()
			return true, j, nil
		}
		t.Fatalf("Kubernetes asks for %v", a)
		return false, nil, nil
	})
	c, err := jobController(ctx, client, clocktesting.NewFakeClock(now), f.Core().V1().Pods(), f.Batch().V1().Jobs(), nil,
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if before, ok := past.theirs.(*job.Controller); ok {
		*hidden[unsafe.Pointer](c, "podBackoffStore") = *hidden[unsafe.Pointer](before, "podBackoffStore")
	}
	past.theirs = c
	if err := f.Batch().V1().Jobs().Informer().GetStore().Add(j.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if err := f.Core().V1().Pods().Informer().GetStore().Add(p.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	err = syncJob(c, ctx, "default/j")
	if err != nil && !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	cancel()
	c.Run(ctx, 0) // ends its queues
	out.Release = slices.Sorted(maps.Keys(taken))
	out.Status = *inOneOrder(&out.Status)
	// It makes and deletes several pods at a time, with names that are left to chance.
	slices.Sort(out.Remove)
	what := func(p *v1.Pod) string { return newPod(p.Annotations[jobs.Index], p.Annotations) }
	slices.SortFunc(out.Created, func(a, b *v1.Pod) int { return strings.Compare(what(a), what(b)) })
	for _, p := range out.Created {
		p.Name, p.GenerateName = "", ""
	}
	return out
}

// inOneOrder is a status without what is left to chance: the order of pods, and which of several failed ones is told
// of.
func inOneOrder(s *batch1.JobStatus) *batch1.JobStatus {
	s = s.DeepCopy()
	if u := s.UncountedTerminatedPods; u != nil {
		slices.Sort(u.Succeeded)
		slices.Sort(u.Failed)
	}
	for i := range s.Conditions {
		if s.Conditions[i].Reason == plan.ReasonPodFailurePolicy {
			s.Conditions[i].Message = ""
		}
	}
	return s
}

// hidden returns a field of a controller that others do not see.
func hidden[T any](c *job.Controller, name string) *T {
	f := reflect.ValueOf(c).Elem().FieldByName(name)
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}
