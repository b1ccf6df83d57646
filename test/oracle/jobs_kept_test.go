package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	batch1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	ob "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	ourbatch "monoplane.dev/apiserver/kinds/batch"
	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"
)

// jobWorld is a cluster with one Job in the midst of something.
type jobWorld struct {
	*testing.T
	r     *rand.Rand
	clock *clocktesting.FakeClock
	// past are the steps before, of which both know how often pods have failed.
	past course
	mine plan.Backoff
	job  *batch1.Job
	pods map[string]*v1.Pod
	made int
	refused
	seen map[string]int
}

// refused is what fails in a step: making pods, writing the status, and taking the finalizers from some pods.
type refused struct {
	NoCreate, NoStatus bool
	Kept               map[string]bool
}

// jobAnswer is what Kubernetes' controller does in a step: which pods it makes, deletes and lets go, the statuses that
// it writes, and the one that there is then.
type jobAnswer struct {
	Created         []*v1.Pod
	Remove, Release []string
	Written         []batch1.JobStatus
	Status          batch1.JobStatus
}

// jobStep is what a controller does in one step, in words and in statuses.
type jobStep struct {
	create, remove, release []string
	// written are the statuses that are written, but for one that says what the one before it says.
	written []*ob.JobStatus
}

func (s jobStep) String() string {
	for _, list := range [][]string{s.create, s.remove, s.release} {
		slices.Sort(list)
	}
	text := fmt.Sprintf("create %v\nremove %v\nrelease %v\n", s.create, s.remove, s.release)
	for _, status := range s.written {
		text += fmt.Sprintf("write %v\n", status)
	}
	return text
}

// newPod says which pod is made.
func newPod(index string, annotations map[string]string) string {
	return fmt.Sprintf("%s failed %s ignored %s", index, annotations[jobs.Failures], annotations[jobs.Ignored])
}

// sync takes Kubernetes' controller a step further.
func (w *jobWorld) sync() (out jobStep, status batch1.JobStatus, created []*v1.Pod) {
	answer := ask[jobAnswer](w.T, "steps-of-jobs", &w.past, w.job, w.pods, w.refused, w.clock.Now())
	out.remove, out.release = answer.Remove, answer.Release
	for _, p := range answer.Created {
		out.create = append(out.create, newPod(p.Annotations[jobs.Index], p.Annotations))
	}
	for _, s := range answer.Written {
		out.written = append(out.written, toldOf(w.T, &s))
	}
	return out, answer.Status, answer.Created
}

// toldOf returns a status as it can be compared: lists of pods are in any order, and which of several pods is told of
// as the one that failed the Job is free.
func toldOf(t *testing.T, s *batch1.JobStatus) *ob.JobStatus {
	return comparable(converted(t, &batch1.Job{Status: *s}, &ob.Job{}).GetStatus())
}

func comparable(s *ob.JobStatus) *ob.JobStatus {
	s = proto.Clone(s).(*ob.JobStatus)
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &ob.UncountedTerminatedPods{}
	}
	slices.Sort(s.UncountedTerminatedPods.Succeeded)
	slices.Sort(s.UncountedTerminatedPods.Failed)
	for _, c := range s.Conditions {
		if c.GetReason() == plan.ReasonPodFailurePolicy {
			c.Message = ""
		}
	}
	return s
}

// ours does what package plan says, where the same fails.
func (w *jobWorld) ours() (out jobStep) {
	j := converted(w.T, w.job, &ob.Job{})
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pods = append(pods, converted(w.T, w.pods[name], &corev1.Pod{}))
	}
	name := func(p *corev1.Pod) string { return p.GetMetadata().GetName() }
	released, taken := map[string]bool{}, map[string]bool{}
	take := func(p *corev1.Pod) bool {
		if w.Kept[name(p)] {
			return false
		}
		released[p.GetMetadata().GetUid()], taken[name(p)] = true, true
		return true
	}
	s := plan.Begin(j, pods, nil, w.mine, w.clock.Now())
	work := s.Work()
	made := 0
	if !w.NoCreate {
		made = len(work.Create)
		for _, n := range work.Create {
			index := ""
			if n.Index >= 0 {
				index = strconv.Itoa(int(n.Index))
			}
			out.create = append(out.create, newPod(index, n.Annotations))
		}
	}
	var deleted []*corev1.Pod
	for _, p := range work.Delete {
		if work.Uncounted && plan.Tracked(p) && !take(p) {
			continue
		}
		deleted = append(deleted, p)
		out.remove = append(out.remove, name(p))
	}
	s.Did(made, deleted)
	before := j.GetStatus()
	write := func(next *ob.JobStatus) {
		was, now := proto.Clone(j).(*ob.Job), proto.Clone(j).(*ob.Job)
		was.Status, now.Status = before, next
		if faults := ourbatch.ValidateJobStatus(now, was); len(faults) > 0 {
			w.Fatalf("the status\n%v\nis refused: %v\nof\n%s", next, faults, w)
		}
		if told := comparable(next); !proto.Equal(told, comparable(before)) {
			out.written = append(out.written, told)
		}
		before = proto.Clone(next).(*ob.JobStatus)
	}
	status, release := s.Record()
	if status == nil || !w.NoStatus {
		if status != nil {
			write(status)
			w.mine = s.Backoff()
		}
		all := true
		for _, p := range release {
			all = take(p) && all
		}
		if next, _ := s.Count(status, released, all); next != nil && !w.NoStatus {
			write(next)
		}
	}
	out.release = slices.Collect(maps.Keys(taken))
	return out
}

// step takes both a step further, compares them, and does what Kubernetes did. It returns false when Kubernetes cannot
// go on: of an index with two pods, one of which has succeeded and the other failed, its controller says both, which
// its server does not take.
func (w *jobWorld) step() bool {
	r := w.r
	w.NoCreate, w.NoStatus, w.Kept = r.IntN(12) == 0, r.IntN(12) == 0, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if r.IntN(10) == 0 {
			w.Kept[name] = true
		}
	}
	mine := w.ours()
	theirs, status, created := w.sync()
	for _, s := range theirs.written {
		n := w.job.Spec.Completions
		if n == nil {
			break
		}
		if both, _ := indexes.Read(s.GetCompletedIndexes(), *n).Common(indexes.Read(s.GetFailedIndexes(), *n)); both > 0 {
			w.seen["an index has succeeded and failed"]++
			return false
		}
	}
	w.since(&mine, &theirs, &status)
	if got, want := mine.String(), theirs.String(); got != want {
		w.Fatalf("at %v, refused: create %t, status %t, finalizers of %v\n%s\nKubernetes does\n%s\nof\n%s", w.clock.Now(),
			w.NoCreate, w.NoStatus, slices.Sorted(maps.Keys(w.Kept)), got, want, w)
	}
	w.job.Status = status
	for _, c := range status.Conditions {
		w.seen[string(c.Type)+" "+c.Reason]++
	}
	for _, name := range theirs.release {
		w.pods[name].Finalizers = nil
	}
	for _, name := range theirs.remove {
		w.remove(name)
	}
	for _, p := range created {
		w.made++
		p.Name = fmt.Sprintf("p%03d", w.made)
		p.UID, p.GenerateName, p.Namespace = types.UID(p.Name), "", "default"
		p.Status.Phase, p.CreationTimestamp = v1.PodPending, w.birth()
		w.pods[p.Name] = p
	}
	return true
}

// birth is when the newest pod was made: no two were at the same time, so that it is not free which of two is newer.
func (w *jobWorld) birth() metav1.Time { return metav1.Unix(1_700_000_000+int64(w.made), 0) }

// since takes over when a Job began where Kubernetes leaves it out: of one that ends while it is suspended, for which
// its server then asks, and of one that is resumed while it ends or is deleted, until something else is to be written.
func (w *jobWorld) since(mine, theirs *jobStep, status *batch1.JobStatus) {
	n := len(mine.written)
	if n == 0 || mine.written[n-1].StartTime == nil {
		return
	}
	began, only := mine.written[n-1].StartTime, toldOf(w.T, &w.job.Status)
	only.StartTime = began
	switch {
	case len(theirs.written) == n && jobs.Finished(mine.written[n-1]) && theirs.written[n-1].StartTime == nil:
		theirs.written[n-1].StartTime = began
	case len(theirs.written) == 0 && n == 1 && proto.Equal(only, mine.written[0]):
		theirs.written = mine.written
	default:
		return
	}
	status.StartTime = ptr(metav1.NewTime(w.clock.Now()))
}

// remove has a pod deleted.
func (w *jobWorld) remove(name string) {
	p := w.pods[name]
	switch {
	case p.DeletionTimestamp != nil:
	case p.Spec.NodeName != "" || len(p.Finalizers) > 0:
		w.clock.Step(time.Second)
		p.DeletionTimestamp = ptr(metav1.NewTime(w.clock.Now().Add(30 * time.Second)))
		p.DeletionGracePeriodSeconds = ptr(int64(30))
	default:
		delete(w.pods, name)
	}
}

// String shows the world.
func (w *jobWorld) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n%v\ndeleted %v\n", w.job.Spec.String(), w.job.Status.String(), w.job.DeletionTimestamp)
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		fmt.Fprintf(&b, "pod %s: on %q, %s, %v, annotations %v, made %v, deleted %v, %v %v\n", name, p.Spec.NodeName,
			p.Status.Phase, p.Finalizers, p.Annotations, p.CreationTimestamp, p.DeletionTimestamp, p.Status.Conditions,
			p.Status.ContainerStatuses)
	}
	return b.String()
}

// end has the containers of a pod end.
func (w *jobWorld) end(p *v1.Pod, phase v1.PodPhase) {
	code := int32(0)
	if phase == v1.PodFailed {
		code = int32(1 + w.r.IntN(4))
	}
	w.clock.Step(time.Second) // no two at the same time: which of two failed pods of an index is the last is not free
	p.Status.Phase, p.Status.Conditions = phase, nil
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.clock.Now())}}}}
	if phase == v1.PodFailed && w.r.IntN(3) == 0 {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
	}
}

// terminal says whether a pod has ended.
func terminal(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
}

// happen has something happen, as agents, the scheduler and people do.
func (w *jobWorld) happen() {
	r := w.r
	noted := map[types.UID]bool{} // one that counts as failed does not succeed: then Kubernetes counts it twice
	if u := w.job.Status.UncountedTerminatedPods; u != nil {
		for _, uid := range u.Failed {
			noted[uid] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		over := terminal(p)
		switch x := r.IntN(24); {
		case p.DeletionTimestamp != nil && over && len(p.Finalizers) == 0:
			delete(w.pods, name)
		case over:
			if x < 2 {
				w.remove(name)
			}
		case p.DeletionTimestamp != nil && x < 8:
			w.end(p, v1.PodFailed)
		case p.DeletionTimestamp != nil && x < 10 && !noted[p.UID]:
			w.end(p, v1.PodSucceeded)
		case p.DeletionTimestamp != nil:
		case p.Spec.NodeName == "" && x < 14:
			p.Spec.NodeName = pick(r, []string{"n1", "n2"})
		case p.Spec.NodeName == "":
		case p.Status.Phase == v1.PodPending && x < 16:
			p.Status.Phase = v1.PodRunning
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main"}}
		case p.Status.Phase == v1.PodRunning && x < 6:
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(w.clock.Now())}}
		case p.Status.Phase == v1.PodRunning && x < 10:
			w.end(p, v1.PodSucceeded)
		case p.Status.Phase == v1.PodRunning && x < 14:
			w.end(p, v1.PodFailed)
		case x == 14:
			w.remove(name)
		case p.Status.Phase == v1.PodRunning && x == 15:
			p.Status.ContainerStatuses[0].RestartCount++
		}
	}
	s := &w.job.Spec
	switch r.IntN(16) {
	case 0:
		s.Suspend = ptr(r.IntN(2) == 0)
	case 1:
		n := int32(r.IntN(5))
		if s.Parallelism = &n; s.CompletionMode != nil && r.IntN(3) == 0 {
			s.Completions = ptr(n) // elastic
		}
	case 2: // two of one index, or one too many, as after an adoption
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			if terminal(w.pods[name]) || w.pods[name].DeletionTimestamp != nil {
				continue
			}
			w.made++
			p := w.pods[name].DeepCopy()
			p.Name = fmt.Sprintf("p%03d", w.made)
			p.UID, p.CreationTimestamp = types.UID(p.Name), w.birth()
			if p.Annotations != nil && r.IntN(4) == 0 {
				p.Annotations[jobs.Index] = pick(r, []string{"0", "7", "99", "x", "-1"})
			}
			w.pods[p.Name] = p
			break
		}
	case 3:
		if r.IntN(20) == 0 {
			w.job.DeletionTimestamp = ptr(metav1.NewTime(w.clock.Now()))
		}
	}
	w.clock.Step(time.Duration(r.IntN(pick(r, []int{3, 20, 700}))) * time.Second)
}

// someJob is one of which most features are used.
func someJob(r *rand.Rand) *batch1.Job {
	count := func(n int) *int32 { return ptr(int32(r.IntN(n))) }
	s := batch1.JobSpec{
		Parallelism: count(5), Completions: count(7), BackoffLimit: ptr(int32(pick(r, []int{0, 2, 6, 100}))),
		Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "j"}},
		CompletionMode: ptr(batch1.NonIndexedCompletion), PodReplacementPolicy: ptr(batch1.TerminatingOrFailed),
		Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "j"}},
			Spec: v1.PodSpec{RestartPolicy: pick(r, []v1.RestartPolicy{"Never", "Never", "OnFailure"}),
				Containers: []v1.Container{{Name: "main", Image: "x"}}},
		},
	}
	if r.IntN(2) == 0 {
		s.CompletionMode = ptr(batch1.IndexedCompletion)
		if r.IntN(2) == 0 {
			s.BackoffLimitPerIndex, s.Template.Spec.RestartPolicy = count(3), "Never"
			if r.IntN(2) == 0 {
				s.MaxFailedIndexes = count(4)
			}
		}
		if r.IntN(3) == 0 && *s.Completions > 0 {
			s.SuccessPolicy = &batch1.SuccessPolicy{}
			for range 1 + r.IntN(2) {
				rule := batch1.SuccessPolicyRule{SucceededCount: ptr(int32(1 + r.IntN(3)))}
				if r.IntN(2) == 0 {
					rule.SucceededIndexes = ptr(pick(r, []string{"0", "0-2", "1,3-5"}))
					if r.IntN(2) == 0 {
						rule.SucceededCount = nil
					}
				}
				s.SuccessPolicy.Rules = append(s.SuccessPolicy.Rules, rule)
			}
		}
	} else if r.IntN(4) == 0 {
		s.Completions = nil
	}
	if r.IntN(3) == 0 {
		s.PodReplacementPolicy = ptr(batch1.Failed)
	}
	if r.IntN(3) == 0 {
		s.PodReplacementPolicy, s.Template.Spec.RestartPolicy = ptr(batch1.Failed), "Never"
		s.PodFailurePolicy = jobFailurePolicy(r, s.BackoffLimitPerIndex != nil)
	}
	if r.IntN(4) == 0 {
		s.ActiveDeadlineSeconds = ptr(int64(1 + r.IntN(600)))
	}
	if r.IntN(4) == 0 {
		s.Suspend = ptr(true)
	}
	return &batch1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default", UID: "j", Generation: 1}, Spec: s}
}

// jobFailurePolicy is one that is valid.
func jobFailurePolicy(r *rand.Rand, perIndex bool) *batch1.PodFailurePolicy {
	p := &batch1.PodFailurePolicy{}
	for range 1 + r.IntN(3) {
		rule := batch1.PodFailurePolicyRule{Action: pick(r, []batch1.PodFailurePolicyAction{"FailJob", "Ignore", "Count"})}
		if perIndex && r.IntN(2) == 0 {
			rule.Action = "FailIndex"
		}
		if r.IntN(2) == 0 {
			rule.OnExitCodes = &batch1.PodFailurePolicyOnExitCodesRequirement{
				Operator: pick(r, []batch1.PodFailurePolicyOnExitCodesOperator{"In", "NotIn"}),
				Values:   []int32{int32(1 + r.IntN(4))},
			}
		} else {
			rule.OnPodConditions = []batch1.PodFailurePolicyOnPodConditionsPattern{
				{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

// Step by step the same pods are made, deleted and let go, and the same is written before and after they lose their
// finalizers, whatever happens to the pods and whichever calls fail. spec: WORK-1
func TestJobsAreKeptAlike(t *testing.T) {
	r := random(t)
	const steps = 30
	seen := map[string]int{}
	for range max(1, *count/steps) {
		w := &jobWorld{
			T: t, r: r, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), job: someJob(r),
			pods: map[string]*v1.Pod{}, seen: seen,
		}
		for range steps {
			if !w.step() || jobs.Finished(toldOf(w.T, &w.job.Status)) {
				break
			}
			w.happen()
		}
	}
	t.Log(seen)
}
