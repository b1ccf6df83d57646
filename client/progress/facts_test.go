package progress

import (
	"testing"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: name, Labels: map[string]string{"app": "web"},
			OwnerReferences: []*metav1.OwnerReference{{Uid: "rs"}}},
		Spec:   &corev1.PodSpec{NodeName: "n1", Containers: []*corev1.Container{{Name: "c"}}},
		Status: &corev1.PodStatus{Phase: "Running"},
	}
	change(p)
	return p
}

func waits(reason, text string, last *corev1.ContainerStateTerminated) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []*corev1.ContainerStatus{{
			Name: "c", RestartCount: 4, LastState: &corev1.ContainerState{Terminated: last},
			State: &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: text}},
		}}
	}
}

func runs(started bool, c *corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c.Name = "c"
		p.Spec.Containers = []*corev1.Container{c}
		p.Status.ContainerStatuses = []*corev1.ContainerStatus{{Name: "c", Started: &started,
			State: &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
}

func deleted(p *corev1.Pod) {
	p.Metadata.DeletionTimestamp = value.Time(now.Add(time.Minute))
}

// Each pod is said to wait for the one thing that somebody can do something about, and pods that wait for the same are
// one line.
func TestPodsByWhatTheyWaitFor(t *testing.T) {
	crashed := &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}
	warned := &corev1.Event{Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed: 503",
		InvolvedObject: &corev1.ObjectReference{Uid: "late"}, LastTimestamp: value.Time(now)}
	all := []object.Object{
		pod("ready", func(p *corev1.Pod) {
			p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: "True"}}
		}),
		pod("crash-1", waits("CrashLoopBackOff", "back-off 5 s", crashed)),
		pod("crash-2", waits("CrashLoopBackOff", "back-off 10 s", crashed)),
		pod("image", waits("ImagePullBackOff", "no such image", nil)),
		pod("new", waits("ContainerCreating", "", nil)),
		pod("late", runs(true, &corev1.Container{ReadinessProbe: &corev1.Probe{}})),
		pod("starting", runs(false, &corev1.Container{StartupProbe: &corev1.Probe{}})),
		pod("gated", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Spec.SchedulingGates = "", []*corev1.PodSchedulingGate{{Name: "x/y"}}
		}),
		pod("big", func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		pod("held", func(p *corev1.Pod) { deleted(p); p.Metadata.Finalizers = []string{"x/hold"} }),
		pod("lost", func(p *corev1.Pod) { deleted(p); p.Spec.NodeName = "n2" }),
		pod("going", deleted),
		pod("kept", func(p *corev1.Pod) {
			deleted(p)
			p.Status = &corev1.PodStatus{Phase: "Succeeded", Conditions: []*corev1.PodCondition{
				{Type: "monoplane.dev/KillFailed", Status: "False", Message: "was stuck"},
				{Type: "monoplane.dev/RemoveFailed", Status: "True", Message: "not removed: driver d is away"},
			}}
		}),
		pod("evicted", func(p *corev1.Pod) { p.Status = &corev1.PodStatus{Phase: "Failed", Reason: "Evicted"} }),
	}
	f := &facts{
		now:    now,
		root:   &appsv1.ReplicaSet{Metadata: &metav1.ObjectMeta{Name: "web", Uid: "rs"}},
		events: map[string][]*corev1.Event{"late": {warned}},
		nodes: map[string]*corev1.Node{
			"n1": {Status: &corev1.NodeStatus{Conditions: []*corev1.NodeCondition{{Type: "Ready", Status: "True"}}}},
			"n2": {Status: &corev1.NodeStatus{Conditions: []*corev1.NodeCondition{{Type: "Ready", Status: "Unknown"}}}},
		},
		reviews: map[string]*schedulingv1.PlacementReviewStatus{"big": {Message: "0/2 nodes are available", NodeCount: 2,
			Nodes: []*schedulingv1.PlacementNode{
				{RefusedBy: &schedulingv1.PlacementRefusal{Plugin: "A", Reasons: []string{"too far"}},
					AlsoRefusedBy: []*schedulingv1.PlacementRefusal{{Plugin: "B", Reasons: []string{"too small"}}}},
				{RefusedBy: &schedulingv1.PlacementRefusal{Plugin: "B", Reasons: []string{"too old"}}},
			}}},
	}
	f.keep(append(all, pod("other", func(p *corev1.Pod) { p.Metadata.OwnerReferences = nil })))
	const want = `replicaset.apps/web: 1 of 14 pods are ready

PODS   STATE              NAMES             WHY
2      CrashLoopBackOff   crash-1,crash-2   container c: restarted 4 times, the last exit code was 3 (Error)
1      Unschedulable      big               0/2 nodes are available
                                              A refuses 1 of 2 nodes: too far
                                              B refuses 2 of 2 nodes: too old, too small
1      Failed             evicted           Evicted
1      SchedulingGated    gated             held by x/y
1      Terminating        going             its containers have time to end
1      Terminating        held              held by finalizers x/hold
1      ImagePullBackOff   image             container c: no such image
1      Terminating        kept              not removed: driver d is away
` + "1      NotReady           late              container c does not pass its readiness probe; " +
		"Unhealthy: Readiness probe failed: 503\n" +
		"1      Terminating        lost              its node n2 is not ready, so that nobody says whether it has ended\n" +
		`1      NotReady           new               container c does not run yet
1      NotReady           starting          container c has not passed its startup probe
`
	if got := f.report().String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// What holds the whole is said of the workload and of what it owns; what has been overcome is not.
func TestHolds(t *testing.T) {
	d := &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Name: "web", Uid: "d"},
		Spec:     &appsv1.DeploymentSpec{Paused: true, Replicas: new(int32(3))},
		Status: &appsv1.DeploymentStatus{Conditions: []*appsv1.DeploymentCondition{
			{Type: "Available", Status: "True", Reason: "Fine"},
			{Type: "Progressing", Status: "False", Reason: "ProgressDeadlineExceeded", Message: "too slow"},
			{Type: "ReplicaFailure", Status: "True", Reason: "FailedCreate"},
		}},
	}
	owned := []*metav1.OwnerReference{{Uid: "d"}}
	rs := &appsv1.ReplicaSet{Metadata: &metav1.ObjectMeta{Name: "web-1", Uid: "rs", OwnerReferences: owned}}
	old := &appsv1.ReplicaSet{Metadata: &metav1.ObjectMeta{Name: "web-0", Uid: "old", OwnerReferences: owned}}
	event := func(kind, reason, text string, before time.Duration) *corev1.Event {
		return &corev1.Event{Type: kind, Reason: reason, Message: text, EventTime: value.MicroTime(now.Add(-before))}
	}
	f := &facts{now: now, root: d, events: map[string][]*corev1.Event{
		"rs": {event("Warning", "FailedCreate", "quota", 90*time.Second),
			event("Warning", "FailedCreate", "quota of before", time.Hour),
			event("Normal", "SuccessfulCreate", "made", 2*time.Hour)},
		"old": {event("Warning", "FailedCreate", "quota", time.Hour), event("Normal", "SuccessfulCreate", "made", time.Minute)},
	}}
	budget := func(name, app string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			Metadata: &metav1.ObjectMeta{Name: name},
			Spec: &policyv1.PodDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status: &policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 2},
		}
	}
	f.keep([]object.Object{rs, old, budget("b", "web"), budget("other", "else"), pod("p", func(p *corev1.Pod) {
		p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: "True"}}
	})})
	const want = `deployment.apps/web: 1 of 1 pods are ready, 3 are wanted
- spec.paused is true
- condition Progressing is False, ProgressDeadlineExceeded: too slow
- condition ReplicaFailure is True, FailedCreate
- replicaset.apps/web-1: event FailedCreate, 1m30s ago: quota
- poddisruptionbudget.policy/b lets none of 1 pods be evicted: 1 are healthy, 2 have to be
`
	if got := f.report().String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
