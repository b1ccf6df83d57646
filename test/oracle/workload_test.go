package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	oa "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	om "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	ourapps "monoplane.dev/apiserver/kinds/apps"
	ourcore "monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/controllers/deployment/rollout"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/podrank"
	"monoplane.dev/rules/portion"
)

// podTemplate is a template of pods that a workload may have, as it is and altered in some ways.
func podTemplate(r *rand.Rand) (before, now v1.PodTemplateSpec, what []string) {
	p := minimal()
	if r.IntN(3) == 0 {
		p = rich()
	}
	not := func(path string) bool { return !strings.HasSuffix(path, ".SELinuxChangePolicy") }
	t := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: p.Spec}
	t.Spec.RestartPolicy = v1.RestartPolicyAlways
	t.Spec.ActiveDeadlineSeconds = nil
	before = *t.DeepCopy()
	what = alter(r, &t.Spec, r.IntN(2), not)
	return before, t, what
}

func selector(r *rand.Rand) *metav1.LabelSelector {
	switch r.IntN(8) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	case 3:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Huh"}}}
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	}
}

func someCount(r *rand.Rand) *int32 {
	if r.IntN(3) == 0 {
		return nil
	}
	return ptr(int32(r.IntN(30) - 3))
}

func amount(r *rand.Rand) *intstr.IntOrString {
	switch r.IntN(5) {
	case 0:
		return nil
	case 1:
		return ptr(intstr.FromString(pick(r, []string{"0%", "25%", "100%", "101%", "x", "5", "-1%"})))
	default:
		return ptr(intstr.FromInt32(int32(r.IntN(6) - 1)))
	}
}

// judged compares what both find wrong with a new object and a change.
func judged(t *testing.T, what []string, theirs verdict, mine, change []apierrors.Cause) (bad bool) {
	t.Helper()
	return report(t, append(what, "create"), compare(theirs.Created, ourFaults(mine))) ||
		report(t, append(what, "update"), onlyMeta(compare(theirs.Updated, ourFaults(change))))
}

// spec: OBJ-3, WORK-1
func TestWorkloadsAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		template, altered, what := podTemplate(r)
		m := meta("w")
		m.ResourceVersion = "1"
		switch r.IntN(3) {
		case 0:
			k := &apps1.Deployment{ObjectMeta: m, Spec: apps1.DeploymentSpec{
				Replicas: someCount(r), Selector: selector(r), Template: altered, MinReadySeconds: int32(r.IntN(4) - 1),
				RevisionHistoryLimit: someCount(r), ProgressDeadlineSeconds: someCount(r), Paused: r.IntN(2) == 0,
				Strategy: apps1.DeploymentStrategy{Type: pick(r, []apps1.DeploymentStrategyType{"", "Recreate",
					"RollingUpdate", "Other"})},
			}}
			if r.IntN(2) == 0 {
				k.Spec.Strategy.RollingUpdate = &apps1.RollingUpdateDeployment{MaxSurge: amount(r), MaxUnavailable: amount(r)}
			}
			old := k.DeepCopy()
			old.Spec.Selector, old.Spec.Template = &metav1.LabelSelector{MatchLabels: template.Labels}, template
			o, before := converted(t, k, &oa.Deployment{}), converted(t, old, &oa.Deployment{})
			ourapps.DefaultDeployment(o)
			ourapps.DefaultDeployment(before)
			keep(o.Metadata, before.Metadata)
			if judged(t, append(what, "deployment", fmt.Sprint(k.Spec.Strategy)), ask[verdict](t, "deployments", k, old),
				ourapps.ValidateDeployment(o), ourapps.ValidateDeploymentUpdate(o, before)) {
				bad++
			}
		case 1:
			k := &apps1.ReplicaSet{ObjectMeta: m, Spec: apps1.ReplicaSetSpec{
				Replicas: someCount(r), Selector: selector(r), Template: altered, MinReadySeconds: int32(r.IntN(4) - 1)}}
			old := k.DeepCopy()
			old.Spec.Selector, old.Spec.Template = &metav1.LabelSelector{MatchLabels: template.Labels}, template
			o, before := converted(t, k, &oa.ReplicaSet{}), converted(t, old, &oa.ReplicaSet{})
			ourapps.DefaultReplicaSet(o)
			ourapps.DefaultReplicaSet(before)
			keep(o.Metadata, before.Metadata)
			if judged(t, append(what, "replicaset"), ask[verdict](t, "replicasets", k, old),
				ourapps.ValidateReplicaSet(o), ourapps.ValidateReplicaSetUpdate(o, before)) {
				bad++
			}
		default:
			k := &v1.ReplicationController{ObjectMeta: m, Spec: v1.ReplicationControllerSpec{
				Replicas: someCount(r), Selector: labelsOf(selector(r)), Template: &altered,
				MinReadySeconds: int32(r.IntN(4) - 1)}}
			old := k.DeepCopy()
			old.Spec.Template = &template
			o := converted(t, k, &corev1.ReplicationController{})
			before := converted(t, old, &corev1.ReplicationController{})
			ourcore.DefaultReplicationController(o)
			ourcore.DefaultReplicationController(before)
			keep(o.Metadata, before.Metadata)
			if judged(t, append(what, "replicationcontroller"), ask[verdict](t, "replicationcontrollers", k, old),
				ourcore.ValidateReplicationController(o), ourcore.ValidateReplicationControllerUpdate(o, before)) {
				bad++
			}
		}
	}
}

// converted is ours in a test that ends when it fails.
func converted[T proto.Message](t *testing.T, from upstream, to T) T {
	t.Helper()
	out, err := ours(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func labelsOf(s *metav1.LabelSelector) map[string]string {
	if s == nil {
		return nil
	}
	return s.MatchLabels
}

// someTime is a time in the last hours, or none.
func someTime(r *rand.Rand, now time.Time) metav1.Time {
	if r.IntN(6) == 0 {
		return metav1.Time{}
	}
	return metav1.NewTime(now.Add(-time.Duration(r.IntN(6)) * time.Minute * time.Duration(1+r.IntN(40))))
}

// replica is a pod in some state that matters to who keeps pods.
func replica(r *rand.Rand, i int, now time.Time) *v1.Pod {
	p := minimal()
	p.UID = types.UID(fmt.Sprint("uid-", i))
	p.CreationTimestamp = someTime(r, now)
	p.Spec.NodeName = pick(r, []string{"", "a", "b", "c"})
	p.Status.Phase = pick(r, []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodUnknown, v1.PodFailed,
		v1.PodSucceeded})
	if r.IntN(4) > 0 {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady,
			Status:             pick(r, []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionTrue, v1.ConditionFalse}),
			LastTransitionTime: someTime(r, now)}}
	}
	if r.IntN(3) == 0 {
		p.Annotations = map[string]string{"controller.kubernetes.io/pod-deletion-cost": pick(r, []string{"", "0", "10", "-5",
			"007", "+3", "x", "-0", "99999999999", "-"})}
	}
	if r.IntN(5) == 0 {
		p.DeletionTimestamp = ptr(metav1.NewTime(now))
	}
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always}, {Name: "init"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", RestartCount: int32(r.IntN(3))}}
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "side", RestartCount: int32(r.IntN(3))},
		{Name: "init", RestartCount: int32(r.IntN(9))}}
	return p
}

// ranked is what Kubernetes makes of two pods: whether the first is active, terminating, ready and available, and
// which is less than the other, the first or the second.
type ranked struct {
	Seems           []bool
	Less, LessOfJob [2]bool
}

// Of any two pods the same one is given up first, and both count alike. spec: WORK-1, WORK-5
func TestPodsAreRankedAlike(t *testing.T) {
	r := random(t)
	now := time.Unix(1_800_000_000, 0)
	for range *count {
		a, b := replica(r, 1, now), replica(r, 2, now)
		rank := []int{r.IntN(3), r.IntN(3)}
		x, y := converted(t, a, &corev1.Pod{}), converted(t, b, &corev1.Pod{})
		ready := int32(r.IntN(3) * 600)
		theirs := ask[ranked](t, "pod-ranks", a, b, rank, ready, now)
		got := []bool{availability.Active(x), availability.Terminating(x), availability.Ready(x),
			availability.Available(x, ready, now)}
		if !slices.Equal(got, theirs.Seems) {
			t.Fatalf("active, terminating, ready, available: %v, Kubernetes says %v of %v", got, theirs.Seems, a)
		}
		if a.Status.Phase == v1.PodFailed || a.Status.Phase == v1.PodSucceeded || b.Status.Phase == v1.PodFailed ||
			b.Status.Phase == v1.PodSucceeded {
			continue // the caller has left them out
		}
		c := podrank.Compare(x, y, rank[0], rank[1], now)
		if s := theirs.Less; s[0] != (c < 0) || s[1] != (c > 0) {
			t.Fatalf("%d, Kubernetes says %v, of\n%v\n%v", c, s, a, b)
		}
		ofJob := theirs.LessOfJob
		if c := podrank.CompareWork(x, y); ofJob[0] != (c < 0) || ofJob[1] != (c > 0) {
			t.Fatalf("of a Job %d, Kubernetes says %v, of\n%v\n%v", c, ofJob, a, b)
		}
	}
}

// rolling is a Deployment in the midst of something, with its sets, the new one first.
func rolling(r *rand.Rand) (*apps1.Deployment, []*apps1.ReplicaSet) {
	want := int32(r.IntN(12))
	template := func(i int) v1.PodTemplateSpec {
		return v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: fmt.Sprint("image:", i)}}},
		}
	}
	surge, missing := intstr.FromInt32(int32(r.IntN(4))), intstr.FromInt32(int32(r.IntN(4)))
	if r.IntN(2) == 0 {
		surge, missing = intstr.FromString(fmt.Sprint(r.IntN(60), "%")), intstr.FromString(fmt.Sprint(r.IntN(60), "%"))
	}
	d := &apps1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "d", Generation: 1}, Spec: apps1.DeploymentSpec{
		Replicas: &want, Template: template(0), RevisionHistoryLimit: ptr(int32(10)),
		ProgressDeadlineSeconds: ptr(int32(600)),
		Strategy: apps1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &apps1.RollingUpdateDeployment{
			MaxSurge: &surge, MaxUnavailable: &missing}},
	}}
	d.Status.Replicas = int32(r.IntN(12))
	var sets []*apps1.ReplicaSet
	for i := range 1 + r.IntN(4) {
		n := int32(r.IntN(10))
		if i > 0 && r.IntN(2) == 0 {
			n = 0
		}
		rs := &apps1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("rs-", i), UID: types.UID(fmt.Sprint("rs-", i)),
				CreationTimestamp: metav1.Unix(int64(1000-10*r.IntN(3)), 0)},
			Spec:   apps1.ReplicaSetSpec{Replicas: &n, Template: template(i)},
			Status: apps1.ReplicaSetStatus{Replicas: n, AvailableReplicas: int32(r.IntN(int(n) + 1))},
		}
		if r.IntN(4) > 0 {
			rs.Annotations = map[string]string{
				"deployment.kubernetes.io/desired-replicas": fmt.Sprint(want),
				"deployment.kubernetes.io/max-replicas":     fmt.Sprint(1 + r.IntN(14)),
			}
		}
		sets = append(sets, rs)
	}
	return d, sets
}

// sizedRollout are the sizes of the steps of a rollout, that of the new set, and which set that is.
type sizedRollout struct {
	Surge, Missing, New int32
	Found               string
}

// The sizes of the steps, and those of the new set, are Kubernetes'. spec: WORK-1
func TestRolloutsAreSizedAlike(t *testing.T) {
	r := random(t)
	for range *count {
		d, sets := rolling(r)
		o := converted(t, d, &oa.Deployment{})
		mine := make([]*oa.ReplicaSet, len(sets))
		for i, rs := range sets {
			mine[i] = converted(t, rs, &oa.ReplicaSet{})
		}
		theirs := ask[sizedRollout](t, "rollout-sizes", d, sets)
		if surge, missing := rollout.Surge(o), rollout.Unavailable(o); surge != theirs.Surge || missing != theirs.Missing {
			t.Fatalf("steps %d and %d, Kubernetes says %d and %d, of %v", surge, missing, theirs.Surge, theirs.Missing,
				d.Spec)
		}
		want := theirs.New
		if *sets[0].Spec.Replicas > *d.Spec.Replicas {
			want = *d.Spec.Replicas // its caller does
		}
		if got := rollout.NewSize(o, mine[0], mine[1:]); got != want {
			t.Fatalf("the new set is to have %d, Kubernetes says %d, of %v %v", got, want, d, sets)
		}
		fresh, old := rollout.Find(o, slices.Clone(mine))
		if theirs.Found != fresh.GetMetadata().GetName() || len(old) != len(sets)-1 {
			t.Fatalf("the new set is %v, Kubernetes says %v", fresh, theirs.Found)
		}
	}
}

// Sets are scaled in the proportions of Kubernetes while a Deployment is paused. spec: WORK-1
func TestRolloutsAreScaledAlike(t *testing.T) {
	r := random(t)
	for range *count {
		d, sets := rolling(r)
		d.Spec.Paused = true
		o := converted(t, d, &oa.Deployment{})
		got := map[string]int32{}
		mine := make([]*oa.ReplicaSet, len(sets))
		for i, rs := range sets {
			mine[i] = converted(t, rs, &oa.ReplicaSet{})
			got[rs.Name] = *rs.Spec.Replicas
		}
		want := ask[map[string]int32](t, "rollout-scales", d, sets)
		for _, s := range rollout.Next(o, mine[0], mine[1:], func() bool { return false }).Scale {
			got[s.Set.GetMetadata().GetName()] = s.To
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v, Kubernetes says %v, of %v %v", got, want, d, sets)
		}
	}
}

// Numbers and percentages are read alike.
func TestAmountsAreReadAlike(t *testing.T) {
	r := random(t)
	for range *count {
		v := amount(r)
		if v == nil {
			continue
		}
		total := r.IntN(200)
		mine := &om.IntOrString{Type: int64(v.Type), IntVal: v.IntVal, StrVal: v.StrVal}
		up, err := intstr.GetScaledValueFromIntOrPercent(v, total, true)
		if strings.HasPrefix(v.StrVal, "-") {
			continue // validation refuses it
		}
		got, mistake := portion.Up(mine, total)
		if got != up || (err != nil) != (mistake != nil) {
			t.Fatalf("%v of %d, rounded up, is %d, %v; Kubernetes says %d, %v", v, total, got, mistake, up, err)
		}
		down, _ := intstr.GetScaledValueFromIntOrPercent(v, total, false)
		if got, _ := portion.Down(mine, total); got != down {
			t.Fatalf("%v of %d, rounded down, is %d; Kubernetes says %d", v, total, got, down)
		}
	}
}
