package oracle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/protobuf/proto"
	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
	clocktesting "k8s.io/utils/clock/testing"

	oa "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/controllers/daemonset/plan"
	"monoplane.dev/rules/taints"
)

// syncDaemons takes the DaemonSet with a key a step further.
//
//go:linkname syncDaemons k8s.io/kubernetes/pkg/controller/daemon.(*DaemonSetsController).syncDaemonSet
func syncDaemons(c *daemon.DaemonSetsController, ctx context.Context, key string) error

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

// The same nodes have pods, and the pods are made of the same. spec: WORK-1, SCHED-4
func TestDaemonsArePlacedAlike(t *testing.T) {
	r := random(t)
	verdicts := map[[2]bool]int{}
	for range *count {
		d, n := someDaemons(r), someNode(r, pick(r, []string{"n1", "n2"}))
		o := converted(t, d, &oa.DaemonSet{})
		run, stay := daemon.NodeShouldRunDaemonPod(klog.Background(), n, d)
		verdicts[[2]bool{run, stay}]++
		if r, s := plan.PlaceOf(o).Judge(converted(t, n, &corev1.Node{})); r != run || s != stay {
			t.Fatalf("run %t, stay %t; Kubernetes says %t, %t, of\n%v\n%v", r, s, run, stay, n, d.Spec.Template.Spec)
		}
		generation, err := util.GetTemplateGeneration(d)
		if err != nil {
			t.Fatal(err)
		}
		template := util.CreatePodTemplate(d.Spec.Template, generation, "hash")
		template.Spec.Affinity = util.ReplaceDaemonSetPodNodeNameNodeAffinity(template.Spec.Affinity, n.Name)
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
		target, err := util.GetTargetNodeName(p)
		if name, ok := plan.Target(converted(t, p, &corev1.Pod{})); name != target || ok != (err == nil) {
			t.Fatalf("the target is %q, %t; Kubernetes says %q, %v", name, ok, target, err)
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
	theirs    *flowcontrol.Backoff
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
	create, remove []string // nodes and names of pods
	status         *apps1.DaemonSetStatus
}

// sync takes Kubernetes' controller a step further. It is a new one each time, which waits for nothing of before.
func (w *daemonWorld) sync() (out did, err error) {
	ctx, cancel := context.WithCancel(w.Context())
	client := fake.NewClientset()
	f := informers.NewSharedInformerFactory(client, 0)
	client.PrependReactor("*", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		switch kind := a.GetResource().Resource; a := a.(type) {
		case k8stesting.CreateActionImpl:
			if kind == "pods" {
				p := a.GetObject().(*v1.Pod).DeepCopy()
				node, err := util.GetTargetNodeName(p)
				if err != nil {
					w.Fatal(err)
				}
				out.create = append(out.create, node)
				p.Name = "made-for-" + node
				return true, p, nil
			}
			rev := a.GetObject().(*apps1.ControllerRevision)
			w.revisions[rev.Name] = rev
			return true, rev, nil
		case k8stesting.DeleteActionImpl:
			if kind == "pods" {
				out.remove = append(out.remove, a.GetName())
			} else {
				delete(w.revisions, a.GetName())
			}
			return true, nil, nil
		case k8stesting.UpdateActionImpl:
			if kind == "controllerrevisions" {
				rev := a.GetObject().(*apps1.ControllerRevision)
				w.revisions[rev.Name] = rev
			} else {
				s := a.GetObject().(*apps1.DaemonSet).Status
				out.status = &s
			}
			return true, a.GetObject(), nil
		}
		w.Fatalf("Kubernetes asks for %v", a)
		return false, nil, nil
	})
	c, err := daemon.NewDaemonSetsController(ctx, f.Apps().V1().DaemonSets(), f.Apps().V1().ControllerRevisions(),
		f.Core().V1().Pods(), f.Core().V1().Nodes(), client, w.theirs)
	if err != nil {
		w.Fatal(err)
	}
	add := func(err error) {
		if err != nil {
			w.Fatal(err)
		}
	}
	add(f.Apps().V1().DaemonSets().Informer().GetStore().Add(w.set))
	for _, rev := range w.revisions {
		add(f.Apps().V1().ControllerRevisions().Informer().GetStore().Add(rev))
	}
	for _, p := range w.pods {
		add(f.Core().V1().Pods().Informer().GetStore().Add(p))
	}
	for _, n := range w.nodes {
		add(f.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	err = syncDaemons(c, ctx, "default/d")
	cancel()
	c.Run(ctx, 0) // ends its queues
	return out, err
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
	theirs, err := w.sync()
	if err != nil {
		if strings.Contains(err.Error(), "couldn't get node for nodeName") {
			w.settle() // Kubernetes does nothing until the pod of a node that is gone is gone, too
			return
		}
		w.Fatal(err)
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
	want, got := w.told(exact, theirs.create, theirs.remove), w.told(exact, mine.Create, remove)
	if want != got {
		w.Fatalf("at %v, exact %t\n%s\nKubernetes does\n%s\nof\n%s", w.clock.Now(), exact, got, want, w)
	}
	status := converted(w.T, &w.set.Status, &oa.DaemonSetStatus{})
	if theirs.status != nil {
		status = converted(w.T, theirs.status, &oa.DaemonSetStatus{})
		w.set.Status = *theirs.status
	}
	if s := seen.Status(); !proto.Equal(s, status) {
		w.Fatalf("the status is\n%v\nKubernetes says\n%v\nof\n%s", s, status, w)
	}
	for _, name := range theirs.remove {
		if w.pods[name].Spec.NodeName == "" {
			delete(w.pods, name) // nobody has to stop it
			continue
		}
		w.pods[name].DeletionTimestamp = ptr(metav1.NewTime(w.clock.Now()))
	}
	hash := w.hash()
	for _, node := range theirs.create {
		w.made++
		name := fmt.Sprintf("p%03d", w.made)
		template := util.CreatePodTemplate(w.set.Spec.Template, nil, hash)
		if w.r.IntN(2) == 0 { // as of an older version, which wrote no hash, or of a newer one, which wrote no count
			template.Labels["pod-template-generation"] = w.set.Annotations[apps1.DeprecatedTemplateGeneration]
		}
		template.Spec.Affinity = util.ReplaceDaemonSetPodNodeNameNodeAffinity(template.Spec.Affinity, node)
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
			remove[i], _ = util.GetTargetNodeName(w.pods[name])
			remove[i] = "a failed one of " + remove[i]
		}
	}
	if !exact {
		available := func(p *v1.Pod) bool {
			return podutil.IsPodAvailable(p, w.set.Spec.MinReadySeconds, metav1.NewTime(w.clock.Now()))
		}
		for i, node := range create {
			free := false
			for _, p := range w.pods {
				if target, err := util.GetTargetNodeName(p); err == nil && target == node && p.DeletionTimestamp == nil {
					free = free || available(p)
				}
			}
			if free {
				create[i] = "some node"
			}
		}
		beside := map[string]int{}
		for _, p := range w.pods {
			if target, err := util.GetTargetNodeName(p); err == nil && p.DeletionTimestamp == nil {
				beside[target]++
			}
		}
		for i, name := range remove {
			if w.pods[name] == nil {
				continue // replaced above
			}
			if target, _ := util.GetTargetNodeName(w.pods[name]); available(w.pods[name]) && beside[target] == 1 {
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
		run, stay := daemon.NodeShouldRunDaemonPod(klog.Background(), w.nodes[name], w.set)
		fmt.Fprintf(&b, "node %s: run %t, stay %t\n", name, run, stay)
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		target, err := util.GetTargetNodeName(p)
		fmt.Fprintf(&b, "pod %s for %s %v: on %q, %s, labels %v, deleted %v, %v\n", name, target, err, p.Spec.NodeName,
			p.Status.Phase, p.Labels, p.DeletionTimestamp, p.Status.Conditions)
	}
	return b.String()
}

// settle has the pods of nodes that are gone go.
func (w *daemonWorld) settle() {
	for name, p := range w.pods {
		if target, err := util.GetTargetNodeName(p); err == nil && w.nodes[target] == nil {
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
		target, err := util.GetTargetNodeName(p)
		switch x := r.IntN(24); {
		case p.DeletionTimestamp != nil && x < 16:
			delete(w.pods, name)
		case p.DeletionTimestamp != nil && x < 18:
			p.Status.Phase = v1.PodFailed
		case p.Spec.NodeName == "" && err == nil && w.nodes[target] != nil && x < 18:
			p.Spec.NodeName = target
			ready(p, v1.ConditionFalse)
		case p.Spec.NodeName == "":
		case p.Status.Phase == v1.PodRunning && x < w.pace:
			if !podutil.IsPodReady(p) {
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
			T: t, r: r, clock: clock, theirs: flowcontrol.NewFakeBackOff(time.Second, 15*time.Minute, clock),
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
