package oracle

import (
	"cmp"
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
	clocktesting "k8s.io/utils/clock/testing"

	oa "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/controllers/daemonset/plan"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/taints"
)

// someTaints are those of a node.
func someTaints(r *rand.Rand) (all []v1.Taint) {
	for range max(0, r.IntN(5)-2) {
		all = append(all, v1.Taint{
			Key: pick(r, []string{"a", "b", taints.NotReady, taints.Unreachable, taints.Unschedulable,
				taints.NetworkUnavailable}),
			Effect: pick(r, []v1.TaintEffect{taints.NoSchedule, taints.NoExecute, taints.PreferNoSchedule}),
		})
	}
	return all
}

// someNode is a node of which little is known.
func someNode(r *rand.Rand, name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"disk": pick(r, []string{"ssd", "hdd"})}}}
	if r.IntN(3) == 0 {
		n.Spec.Taints = someTaints(r)
	}
	return n
}

// someDaemons is a DaemonSet that chooses among nodes.
func someDaemons(r *rand.Rand) *apps1.DaemonSet {
	d := &apps1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "default", UID: "d", Generation: 1,
			Annotations: map[string]string{apps1.DeprecatedTemplateGeneration: "1"}},
		Spec: apps1.DaemonSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{"app": "d"}},
			RevisionHistoryLimit: ptr(int32(r.IntN(3))),
			MinReadySeconds:      int32(r.IntN(2) * 10),
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "d"}},
				Spec:       v1.PodSpec{HostNetwork: r.IntN(4) == 0, Containers: []v1.Container{{Name: "c", Image: "image:1"}}},
			},
		},
	}
	spec := &d.Spec.Template.Spec
	if r.IntN(3) == 0 {
		spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	if r.IntN(8) == 0 {
		spec.NodeName = "n1"
	}
	if r.IntN(3) == 0 {
		spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}, PodAffinity: &v1.PodAffinity{}}
		if r.IntN(3) > 0 {
			spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{
					Key: "disk", Operator: pick(r, []v1.NodeSelectorOperator{"In", "NotIn"}), Values: []string{"ssd"}}}}},
			}
		}
	}
	// One that says the same as those of all daemons, and for a time, is replaced; of two such Kubernetes looks at one.
	seen := map[string]bool{}
	for range r.IntN(3) {
		t := v1.Toleration{
			Key: pick(r, []string{"a", "b", taints.NotReady}), Operator: pick(r, []v1.TolerationOperator{"Exists", "Equal"}),
			Effect: pick(r, []v1.TaintEffect{taints.NoSchedule, taints.NoExecute, ""}),
		}
		if t.Effect == taints.NoExecute {
			t.TolerationSeconds = ptr(int64(30))
		}
		if key := fmt.Sprint(t.Key, t.Operator, t.Effect); !seen[key] {
			seen[key] = true
			spec.Tolerations = append(spec.Tolerations, t)
		}
	}
	setUpdate(r, d)
	return d
}

// setUpdate chooses how pods are replaced.
func setUpdate(r *rand.Rand, d *apps1.DaemonSet) {
	none, some := intstr.FromInt32(0), intstr.FromInt32(int32(1+r.IntN(3)))
	if r.IntN(2) == 0 {
		some = intstr.FromString(fmt.Sprint(1+r.IntN(60), "%"))
	}
	d.Spec.UpdateStrategy = apps1.DaemonSetUpdateStrategy{Type: "RollingUpdate"}
	switch r.IntN(5) {
	case 0:
		d.Spec.UpdateStrategy.Type = "OnDelete"
	case 1, 2:
		d.Spec.UpdateStrategy.RollingUpdate = &apps1.RollingUpdateDaemonSet{MaxUnavailable: &some, MaxSurge: &none}
	default:
		d.Spec.UpdateStrategy.RollingUpdate = &apps1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &some}
	}
}

// placedDaemon says whether a node is to have a pod of a DaemonSet, whether one that is there may stay, and what it is
// made of.
type placedDaemon struct {
	Run, Stay bool
	Template  v1.PodTemplateSpec
}

// targetNode is the node that a pod is for, if it is for one.
type targetNode struct {
	Name string
	OK   bool
}

// The same nodes have pods, and the pods are made of the same. spec: WORK-1, SCHED-4
func TestDaemonsArePlacedAlike(t *testing.T) {
	r := random(t)
	verdicts := map[[2]bool]int{}
	for range *count {
		d, n := someDaemons(r), someNode(r, pick(r, []string{"n1", "n2"}))
		o := converted(t, d, &oa.DaemonSet{})
		placed := ask[placedDaemon](t, "daemons-on-nodes", d, n)
		run, stay := placed.Run, placed.Stay
		verdicts[[2]bool{run, stay}]++
		if r, s := plan.PlaceOf(o).Judge(converted(t, n, &corev1.Node{})); r != run || s != stay {
			t.Fatalf("run %t, stay %t; Kubernetes says %t, %t, of\n%v\n%v", r, s, run, stay, n, d.Spec.Template.Spec)
		}
		template := placed.Template
		want, got := converted(t, &template, &corev1.PodTemplateSpec{}), plan.Template(o, n.Name, "hash")
		if want.Metadata.CreationTimestamp = nil; !proto.Equal(want.Spec, got.Spec) ||
			!maps.Equal(want.Metadata.Labels, got.Metadata.Labels) {
			t.Fatalf("%v\nKubernetes says\n%v", got, want)
		}
		p := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		if r.IntN(3) == 0 {
			p.Spec.NodeName = "bound"
		}
		if r.IntN(6) == 0 && p.Spec.NodeName == "" {
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].
				MatchFields[0].Values = pick(r, [][]string{nil, {"a", "b"}})
		}
		target := ask[targetNode](t, "targets-of-daemons", p)
		if name, ok := plan.Target(converted(t, p, &corev1.Pod{})); name != target.Name || ok != target.OK {
			t.Fatalf("the target is %q, %t; Kubernetes says %v", name, ok, target)
		}
	}
	if len(verdicts) < 3 {
		t.Errorf("all nodes were judged %v", verdicts)
	}
}

// daemonWorld is a cluster with one DaemonSet in the midst of something.
type daemonWorld struct {
	*testing.T
	r         *rand.Rand
	clock     *clocktesting.FakeClock
	past      course
	mine      plan.Backoff
	set       *apps1.DaemonSet
	nodes     map[string]*v1.Node
	pods      map[string]*v1.Pod
	revisions map[string]*apps1.ControllerRevision
	made      int
	// pace is how many of 24 pods become ready in a step.
	pace int
}

// did is what Kubernetes' controller has done in one step.
type did struct {
	Create, Remove []string // nodes and names of pods
	Status         *apps1.DaemonSetStatus
	Revisions      map[string]*apps1.ControllerRevision
	Wrong          string
}

// hash returns the hash of the newest revision.
func (w *daemonWorld) hash() string {
	newest := slices.MaxFunc(slices.Collect(maps.Values(w.revisions)), func(a, b *apps1.ControllerRevision) int {
		return cmp.Compare(a.Revision, b.Revision)
	})
	return newest.Labels[apps1.DefaultDaemonSetUniqueLabelKey]
}

// step takes both a step further, compares them, and does what Kubernetes did.
func (w *daemonWorld) step() {
	d := converted(w.T, w.set, &oa.DaemonSet{})
	theirs := ask[did](w.T, "steps-of-daemonsets", &w.past, w.set, w.nodes, w.pods, w.revisions, w.clock.Now())
	w.revisions = theirs.Revisions
	if theirs.Wrong != "" {
		w.settle() // Kubernetes does nothing until the pod of a node that is gone is gone, too
		return
	}
	var pods []*corev1.Pod
	var nodes []*corev1.Node
	for _, p := range w.pods {
		pods = append(pods, converted(w.T, p, &corev1.Pod{}))
	}
	for _, n := range w.nodes {
		nodes = append(nodes, converted(w.T, n, &corev1.Node{}))
	}
	w.mine.Reset(w.set.Status.ObservedGeneration)
	seen := plan.Look(d, nodes, pods, w.hash(), w.clock.Now())
	mine := seen.Manage(&w.mine)
	exact := !mine.Idle()
	if !exact {
		mine = seen.Roll()
	}
	var remove []string
	for _, p := range mine.Remove {
		remove = append(remove, p.GetMetadata().GetName())
	}
	want, got := w.told(exact, theirs.Create, theirs.Remove), w.told(exact, mine.Create, remove)
	if want != got {
		w.Fatalf("at %v, exact %t\n%s\nKubernetes does\n%s\nof\n%s", w.clock.Now(), exact, got, want, w)
	}
	status := converted(w.T, &w.set.Status, &oa.DaemonSetStatus{})
	if theirs.Status != nil {
		status = converted(w.T, theirs.Status, &oa.DaemonSetStatus{})
		w.set.Status = *theirs.Status
	}
	if s := seen.Status(); !proto.Equal(s, status) {
		w.Fatalf("the status is\n%v\nKubernetes says\n%v\nof\n%s", s, status, w)
	}
	for _, name := range theirs.Remove {
		if w.pods[name].Spec.NodeName == "" {
			delete(w.pods, name) // nobody has to stop it
			continue
		}
		w.pods[name].DeletionTimestamp = ptr(metav1.NewTime(w.clock.Now()))
	}
	hash := w.hash()
	for _, node := range theirs.Create {
		w.made++
		name := fmt.Sprintf("p%03d", w.made)
		template := ask[v1.PodTemplateSpec](w.T, "templates-of-daemons", w.set.Spec.Template, hash, node)
		if w.r.IntN(2) == 0 { // as of an older version, which wrote no hash, or of a newer one, which wrote no count
			template.Labels["pod-template-generation"] = w.set.Annotations[apps1.DeprecatedTemplateGeneration]
		}
		w.pods[name] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name),
			Labels: template.Labels, CreationTimestamp: metav1.NewTime(w.clock.Now()),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.set,
				apps1.SchemeGroupVersion.WithKind("DaemonSet"))}},
			Spec: template.Spec, Status: v1.PodStatus{Phase: v1.PodPending}}
	}
}

// told says what is done: exactly, or, where it is free which of some pods and nodes are chosen, how many of which.
func (w *daemonWorld) told(exact bool, create, remove []string) string {
	create, remove = slices.Clone(create), slices.Clone(remove)
	for i, name := range remove {
		if w.pods[name].Status.Phase == v1.PodFailed { // of several of a node one is the first
			remove[i], _ = w.target(w.pods[name])
			remove[i] = "a failed one of " + remove[i]
		}
	}
	if !exact {
		available := func(p *v1.Pod) bool {
			return availability.Available(converted(w.T, p, &corev1.Pod{}), w.set.Spec.MinReadySeconds, w.clock.Now())
		}
		for i, node := range create {
			free := false
			for _, p := range w.pods {
				if target, ok := w.target(p); ok && target == node && p.DeletionTimestamp == nil {
					free = free || available(p)
				}
			}
			if free {
				create[i] = "some node"
			}
		}
		beside := map[string]int{}
		for _, p := range w.pods {
			if target, ok := w.target(p); ok && p.DeletionTimestamp == nil {
				beside[target]++
			}
		}
		for i, name := range remove {
			if w.pods[name] == nil {
				continue // replaced above
			}
			if target, _ := w.target(w.pods[name]); available(w.pods[name]) && beside[target] == 1 {
				remove[i] = "some pod"
			}
		}
	}
	slices.Sort(create)
	slices.Sort(remove)
	return fmt.Sprintf("create %v, remove %v", create, remove)
}

// String shows the world.
func (w *daemonWorld) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v, minReady %d, hash %s\n", w.set.Spec.UpdateStrategy, w.set.Spec.UpdateStrategy.RollingUpdate,
		w.set.Spec.MinReadySeconds, w.hash())
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		place := plan.PlaceOf(converted(w.T, w.set, &oa.DaemonSet{}))
		run, stay := place.Judge(converted(w.T, w.nodes[name], &corev1.Node{}))
		fmt.Fprintf(&b, "node %s: run %t, stay %t\n", name, run, stay)
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		target, _ := w.target(p)
		fmt.Fprintf(&b, "pod %s for %s: on %q, %s, labels %v, deleted %v, %v\n", name, target, p.Spec.NodeName,
			p.Status.Phase, p.Labels, p.DeletionTimestamp, p.Status.Conditions)
	}
	return b.String()
}

// target is the node that a pod is for, which both say alike, as TestDaemonsArePlacedAlike shows.
func (w *daemonWorld) target(p *v1.Pod) (string, bool) {
	return plan.Target(converted(w.T, p, &corev1.Pod{}))
}

// settle has the pods of nodes that are gone go.
func (w *daemonWorld) settle() {
	for name, p := range w.pods {
		if target, ok := w.target(p); ok && w.nodes[target] == nil {
			delete(w.pods, name)
		}
	}
}

// happen has something happen, as agents, the scheduler and people do.
func (w *daemonWorld) happen() {
	r := w.r
	ready := func(p *v1.Pod, status v1.ConditionStatus) {
		p.Status.Phase = v1.PodRunning
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status,
			LastTransitionTime: metav1.NewTime(w.clock.Now())}}
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		target, ok := w.target(p)
		switch x := r.IntN(24); {
		case p.DeletionTimestamp != nil && x < 16:
			delete(w.pods, name)
		case p.DeletionTimestamp != nil && x < 18:
			p.Status.Phase = v1.PodFailed
		case p.Spec.NodeName == "" && ok && w.nodes[target] != nil && x < 18:
			p.Spec.NodeName = target
			ready(p, v1.ConditionFalse)
		case p.Spec.NodeName == "":
		case p.Status.Phase == v1.PodRunning && x < w.pace:
			if !availability.Ready(converted(w.T, p, &corev1.Pod{})) {
				ready(p, v1.ConditionTrue)
			}
		case x > w.pace && x <= 16 && r.IntN(3) == 0:
			ready(p, v1.ConditionFalse)
		case x == 17:
			p.Status.Phase, p.Status.Conditions = v1.PodFailed, nil
		case x == 18:
			p.Status.Phase, p.Status.Conditions = v1.PodSucceeded, nil
		case x == 19 && r.IntN(3) == 0:
			p.DeletionTimestamp = ptr(metav1.NewTime(w.clock.Now()))
		}
	}
	name := fmt.Sprint("n", 1+r.IntN(9))
	switch r.IntN(14) {
	case 0:
		delete(w.nodes, name)
	case 1, 2:
		w.nodes[name] = someNode(r, name)
	case 3:
		if n := w.nodes[name]; n != nil {
			n.Spec.Taints = someTaints(r)
		}
	case 4, 5:
		w.set.Generation++
		w.set.Annotations[apps1.DeprecatedTemplateGeneration] = fmt.Sprint(w.set.Generation)
		w.set.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("image:", r.IntN(4))
	case 6:
		w.set.Generation++
		setUpdate(r, w.set)
	case 7: // two of one node, as after an adoption
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			w.made++
			p := w.pods[name].DeepCopy()
			p.Name = fmt.Sprintf("p%03d", w.made)
			p.UID = types.UID(p.Name)
			w.pods[p.Name] = p
			break
		}
	}
	w.clock.Step(time.Duration(r.IntN(8)) * time.Second)
}

// Step by step the same pods are made and deleted, and the same is said of it. Which of several available pods are
// taken in a step is free. spec: WORK-1, WORK-5
func TestDaemonsAreKeptAlike(t *testing.T) {
	r := random(t)
	const steps = 40
	for range max(1, *count/steps) {
		clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
		w := &daemonWorld{
			T: t, r: r, clock: clock,
			set: someDaemons(r), nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{},
			revisions: map[string]*apps1.ControllerRevision{}, pace: 3 + r.IntN(14),
		}
		for i := range r.IntN(9) {
			name := fmt.Sprint("n", i+1)
			w.nodes[name] = someNode(r, name)
		}
		for range steps {
			w.step()
			w.happen()
		}
	}
}
