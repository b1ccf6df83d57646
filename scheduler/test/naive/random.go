package naive

import (
	"fmt"
	"math/rand/v2"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/test/objects"
)

// Dice makes random clusters and pods. Names and values are few, so that things meet.
type Dice struct{ *rand.Rand }

// NewDice returns Dice that always fall the same way with a seed.
func NewDice(seed uint64) Dice { return Dice{rand.New(rand.NewPCG(seed, 9))} }

// one says yes once in n times.
func (d Dice) one(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d Dice, of ...T) T { return of[d.IntN(len(of))] }

const (
	zoneKey = "topology.kubernetes.io/zone"
	hostKey = "kubernetes.io/hostname"
)

// Cluster returns nodes with pods on them.
func (d Dice) Cluster() *Cluster {
	c := &Cluster{namespaces: map[string]map[string]string{"ns": d.namespaceLabels(), "other": d.namespaceLabels()}}
	for i := range 1 + d.IntN(12) {
		c.nodes = append(c.nodes, d.node(fmt.Sprint("n", i)))
	}
	for i := range d.IntN(31) {
		c.pods = append(c.pods, d.placed(fmt.Sprint("p", i), fmt.Sprint("n", d.IntN(len(c.nodes)))))
	}
	return c
}

func (d Dice) node(name string) *corev1.Node {
	n := objects.Node(name,
		"cpu="+pick(d, "2", "4", "8", "16", fmt.Sprint(2000+d.IntN(8000), "m")),
		"memory="+pick(d, "1Gi", "4Gi", "16Gi", "64Gi", "512Gi", "5000000001"),
		fmt.Sprint("pods=", 2+d.IntN(9)), "ephemeral-storage="+pick(d, "1Gi", "10Gi"))
	if d.one(12) {
		n.Status.Allocatable[pick(d, "cpu", "memory")] = &metav1.Quantity{String_: "0"}
	}
	if d.one(4) {
		n.Status.Allocatable["example.com/gpu"] = &metav1.Quantity{String_: pick(d, "1", "2")}
	}
	labels := n.Metadata.Labels
	switch d.IntN(10) {
	case 0:
		delete(labels, hostKey)
	case 1:
		labels[hostKey] = "shared"
	}
	if !d.one(6) {
		labels[zoneKey] = pick(d, "a", "b", "c")
	}
	if d.one(2) {
		labels["rack"] = pick(d, "1", "2", "3", "x")
	}
	if d.one(2) {
		labels["disk"] = pick(d, "ssd", "hdd")
	}
	n.Spec.Unschedulable = d.one(10)
	for range max(0, d.IntN(4)-1) {
		n.Spec.Taints = append(n.Spec.Taints, &corev1.Taint{
			Key: pick(d, "a", "b"), Value: pick(d, "1", "2"),
			Effect: pick(d, "NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule"),
		})
	}
	for _, i := range images {
		if d.one(3) {
			n.Status.Images = append(n.Status.Images, &corev1.ContainerImage{Names: i.names, SizeBytes: i.size})
		}
	}
	return n
}

// images are those that nodes can have: names, and sizes around the bounds of what counts.
var images = []struct {
	names []string
	size  int64
}{
	{[]string{"web:latest"}, 90 << 20},
	{[]string{"reg:5000/db:latest", "reg:5000/db@sha256:0123"}, 700 << 20},
	{[]string{"reg:5000/db:v1"}, 1500 << 20},
	{[]string{"tiny:v1", "small:v1"}, 5 << 20},
	{[]string{"huge:v1"}, 5000 << 20},
}

// image is the name of an image as pods give it.
func (d Dice) image() string {
	return pick(d, "web", "web:latest", "reg:5000/db", "reg:5000/db@sha256:0123", "reg:5000/db:v1", "small:v1", "huge:v1",
		"nowhere:v1")
}

func (d Dice) container(name string) *corev1.Container {
	c := &corev1.Container{
		Name: name, Resources: &corev1.ResourceRequirements{},
		Image: d.image(),
	}
	var requests []string
	if !d.one(3) {
		requests = append(requests, "cpu="+pick(d, "0", "100m", "333m", "1", "2"))
	}
	if !d.one(3) {
		requests = append(requests, "memory="+pick(d, "1", "100Mi", "500M", "1Gi"))
	}
	if d.one(8) {
		requests = append(requests, "ephemeral-storage="+pick(d, "100Mi", "1Gi"))
	}
	if d.one(20) {
		requests = append(requests, "example.com/gpu=1")
	}
	c.Resources.Requests = objects.Quantities(requests...)
	if d.one(4) {
		c.Ports = []*corev1.ContainerPort{{
			HostPort: pick(d, int32(0), 80, 81), Protocol: pick(d, "", "TCP", "UDP"),
			HostIP: pick(d, "", "0.0.0.0", "10.0.0.1", "10.0.0.2"),
		}}
	}
	return c
}

// pod is a pod without wishes about nodes.
func (d Dice) pod(name string) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: pick(d, "ns", "ns", "other"), Name: name, Uid: name,
			Labels: map[string]string{"app": pick(d, "web", "db")},
		},
		Spec:   &corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []*corev1.Container{d.container("c")}},
		Status: &corev1.PodStatus{Phase: "Pending"},
	}
	if d.one(2) {
		p.Metadata.Labels["version"] = pick(d, "1", "2")
	}
	if d.one(6) {
		p.Spec.Containers = append(p.Spec.Containers, d.container("c2"))
	}
	for i := range max(0, d.IntN(8)-5) {
		c := d.container(fmt.Sprint("init", i))
		if always := "Always"; d.one(2) {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if d.one(15) {
		v := &corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: d.image()}}
		p.Spec.Volumes = []*corev1.Volume{{Name: "v", VolumeSource: v}}
	}
	if d.one(15) {
		p.Spec.Overhead = objects.Quantities("cpu=50m", "memory=10Mi")
	}
	if d.one(20) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: objects.Quantities("cpu=" + pick(d, "1", "3"))}
	}
	return p
}

// placed is a pod on a node.
func (d Dice) placed(name, node string) *corev1.Pod {
	p := d.pod(name)
	p.Spec.NodeName = node
	if d.one(3) {
		d.keepNear(p, 5)
	}
	if d.one(6) {
		p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
	}
	return p
}

// Pending is a pod to place, with any wishes.
func (d Dice) Pending(name string) *corev1.Pod {
	p := d.pod(name)
	if d.one(30) {
		p.Spec.NodeName = pick(d, "n0", "n1")
	}
	if d.one(8) {
		p.Spec.NodeSelector = map[string]string{pick(d, "disk", "gone"): pick(d, "ssd", "hdd", "")}
	}
	if d.one(6) {
		d.require(p)
	}
	if d.one(3) {
		d.prefer(p)
	}
	if d.one(2) {
		d.keepNear(p, 2)
	}
	d.tolerate(p)
	for _, kind := range []string{"DoNotSchedule", "ScheduleAnyway"} {
		if d.one(2) {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, d.constraints(kind)...)
		}
	}
	return p
}

func (d Dice) tolerate(p *corev1.Pod) {
	for range d.IntN(4) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, pick(d,
			&corev1.Toleration{Operator: "Exists"},
			&corev1.Toleration{Operator: "Exists", Effect: pick(d, "NoSchedule", "NoExecute", "PreferNoSchedule")},
			&corev1.Toleration{Key: "a", Operator: "Equal", Value: "1"},
			&corev1.Toleration{Key: "a", Operator: "Exists", Effect: "NoSchedule"},
			&corev1.Toleration{Key: "b", Operator: "Exists"},
			&corev1.Toleration{Key: "b", Value: "2", Effect: pick(d, "NoExecute", "PreferNoSchedule")},
			&corev1.Toleration{Key: "node.kubernetes.io/unschedulable", Operator: "Exists"},
		))
	}
}

func (d Dice) require(p *corev1.Pod) {
	r := &corev1.NodeSelector{}
	byName := d.one(3) // that all terms name their nodes is a case of its own
	for range 1 + d.IntN(2) {
		r.NodeSelectorTerms = append(r.NodeSelectorTerms, d.term(byName))
	}
	objects.NodeAffinity(p).RequiredDuringSchedulingIgnoredDuringExecution = r
}

func (d Dice) prefer(p *corev1.Pod) {
	a := objects.NodeAffinity(p)
	for range 1 + d.IntN(3) {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			&corev1.PreferredSchedulingTerm{Weight: 1 + d.Int32N(100), Preference: d.term(d.one(6))})
	}
}

func (d Dice) term(byName bool) *corev1.NodeSelectorTerm {
	t := &corev1.NodeSelectorTerm{}
	for range d.IntN(3) {
		r := &corev1.NodeSelectorRequirement{
			Key: pick(d, zoneKey, "disk", "rack"), Operator: pick(d, "In", "NotIn", "Exists", "DoesNotExist"),
		}
		if d.one(4) {
			r.Key, r.Operator, r.Values = "rack", pick(d, "Gt", "Lt"), []string{pick(d, "1", "2", "3")}
		}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = []string{pick(d, "a", "ssd", "1"), pick(d, "b", "hdd", "2")}
		}
		t.MatchExpressions = append(t.MatchExpressions, r)
	}
	if byName {
		for range 1 + d.IntN(2) {
			t.MatchFields = append(t.MatchFields, &corev1.NodeSelectorRequirement{
				Key: "metadata.name", Operator: pick(d, "In", "In", "In", "NotIn"), Values: []string{pick(d, "n0", "n1", "n2")},
			})
		}
	}
	return t
}

// constraints are those of one kind; a key is used once.
func (d Dice) constraints(kind string) []*corev1.TopologySpreadConstraint {
	keys := []string{zoneKey, hostKey, "rack"}
	d.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var list []*corev1.TopologySpreadConstraint
	for _, key := range keys[:1+d.IntN(2)] {
		c := &corev1.TopologySpreadConstraint{
			MaxSkew: 1 + d.Int32N(3), TopologyKey: key, WhenUnsatisfiable: kind, LabelSelector: d.selector(),
		}
		if n := 1 + d.Int32N(4); kind == "DoNotSchedule" && d.one(4) {
			c.MinDomains = &n
		}
		if d.one(4) {
			c.MatchLabelKeys = []string{pick(d, "version", "gone")}
		}
		if policy := pick(d, "Honor", "Ignore", "Ignore"); d.one(2) {
			c.NodeAffinityPolicy = &policy
		}
		if policy := pick(d, "Honor", "Honor", "Ignore"); d.one(3) {
			c.NodeTaintsPolicy = &policy
		}
		list = append(list, c)
	}
	return list
}

func (d Dice) selector() *metav1.LabelSelector {
	switch d.IntN(12) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2, 3:
		r := &metav1.LabelSelectorRequirement{Key: "version", Operator: pick(d, "In", "NotIn", "Exists", "DoesNotExist")}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = []string{"1", pick(d, "2", "3")}
		}
		return &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{r}}
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(d, "web", "db")}}
	}
}

// groups are Services and workloads that pods can belong to.
func (d Dice) groups() []group {
	var list []group
	for range d.IntN(5) { // Services
		labels := map[string]string{}
		if !d.one(6) {
			labels["app"] = pick(d, "web", "db")
		}
		if d.one(3) {
			labels["version"] = pick(d, "1", "2")
		}
		list = append(list, group{namespace: pick(d, "ns", "ns", "other"),
			selector: &metav1.LabelSelector{MatchLabels: labels}})
	}
	for _, namespace := range []string{"ns", "other"} {
		for _, kind := range []string{"ReplicaSet", "StatefulSet"} {
			if selector := d.selector(); selector != nil && d.one(2) {
				list = append(list, group{namespace: namespace, kind: kind, name: "web", selector: selector})
			}
		}
	}
	return list
}

// own gives a pod owners, which need not be there.
func (d Dice) own(p *corev1.Pod) {
	controller := d.IntN(3) // sometimes none
	for i := range d.IntN(3) {
		controls := i == controller
		p.Metadata.OwnerReferences = append(p.Metadata.OwnerReferences, &metav1.OwnerReference{
			ApiVersion: pick(d, "apps/v1", "apps/v1", "apps/v1", "example.com/v1"),
			Kind:       pick(d, "ReplicaSet", "StatefulSet", "ReplicaSet", "Job"),
			Name:       pick(d, "web", "web", "db"), Controller: &controls,
		})
	}
}

// defaults are constraints by default, as a configuration may list them.
func (d Dice) defaults() []*corev1.TopologySpreadConstraint {
	var list []*corev1.TopologySpreadConstraint
	for _, kind := range []string{"DoNotSchedule", "ScheduleAnyway"} {
		if !d.one(3) {
			list = append(list, d.constraints(kind)...)
		}
	}
	for _, c := range list {
		c.LabelSelector, c.MatchLabelKeys = nil, nil
	}
	return list
}
