package naive

import (
	"fmt"
	"maps"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/state"
)

// snapshot is the cluster as a snapshot, made at once.
func (c *Cluster) snapshot() *framework.Snapshot {
	s := framework.NewSnapshot()
	for name, labels := range c.namespaces {
		s.SetNamespace(name, labels)
	}
	for _, node := range c.nodes {
		n := framework.NewNodeInfo(node.Metadata.Name, node)
		for _, p := range c.on(node) {
			n = n.WithPod(framework.NewPodInfo(p))
		}
		s.Set(n.Name, n)
	}
	return s
}

// history brings a snapshot to the same cluster by random changes: nodes and pods come in other states first, go and
// come again, pods are assumed elsewhere, strangers pass through. look is called with the snapshot at some points of
// the way.
func (c *Cluster) history(d Dice, look func(*framework.Snapshot)) *framework.Snapshot {
	s, snapshot := state.New(), framework.NewSnapshot()
	var scripts [][]func()
	for _, node := range c.nodes {
		scripts = append(scripts, d.nodeHistory(s, node))
	}
	for _, pod := range c.pods {
		scripts = append(scripts, d.podHistory(s, pod))
	}
	for _, name := range slices.Sorted(maps.Keys(c.namespaces)) {
		other := d.namespaceLabels()
		scripts = append(scripts, []func(){
			func() { s.SetNamespace(name, other) }, func() { s.SetNamespace(name, nil) },
			func() { s.SetNamespace(name, c.namespaces[name]) },
		})
	}
	for i := range d.IntN(3) {
		n := d.node(fmt.Sprint("stranger", i))
		scripts = append(scripts, []func(){func() { s.SetNode(n) }, func() { s.RemoveNode(n.Metadata.Name) }})
	}
	for i := range d.IntN(5) {
		p := framework.NewPodInfo(d.placed(fmt.Sprint("stranger", i), pick(d, "n0", "n1", "stranger0")))
		scripts = append(scripts, []func(){func() { s.SetPod(p) }, func() { s.RemovePod(p.UID) }})
	}
	for len(scripts) > 0 {
		i := d.IntN(len(scripts))
		scripts[i][0]()
		if scripts[i] = scripts[i][1:]; len(scripts[i]) == 0 {
			scripts[i] = scripts[len(scripts)-1]
			scripts = scripts[:len(scripts)-1]
		}
		if d.one(8) {
			s.Update(snapshot)
			look(snapshot)
		}
	}
	s.Update(snapshot)
	return snapshot
}

func (d Dice) nodeHistory(s *state.State, node *corev1.Node) []func() {
	var script []func()
	for range d.IntN(3) {
		other := d.node(node.Metadata.Name)
		script = append(script, func() { s.SetNode(other) })
		if d.one(3) {
			script = append(script, func() { s.RemoveNode(node.Metadata.Name) })
		}
	}
	return append(script, func() { s.SetNode(node) })
}

func (d Dice) podHistory(s *state.State, pod *corev1.Pod) []func() {
	var script []func()
	last := framework.NewPodInfo(pod)
	for range d.IntN(3) {
		other := framework.NewPodInfo(d.placed(pod.Metadata.Name, pick(d, pod.Spec.NodeName, "n0", "n1")))
		switch d.IntN(4) {
		case 0:
			script = append(script, func() { s.SetPod(other) }, func() { s.RemovePod(other.UID) })
		case 1:
			script = append(script, func() { s.Assume(last, "n0") }, func() { s.Forget(last) })
		case 2:
			script = append(script, func() { s.Assume(other, pod.Spec.NodeName) })
		default:
			script = append(script, func() { s.SetPod(other) })
		}
	}
	script = append(script, func() { s.SetPod(last) })
	if d.one(3) {
		running := object.Clone(pod)
		running.Status.Phase = "Running"
		script = append(script, func() { s.Renew(running) })
	}
	return script
}
