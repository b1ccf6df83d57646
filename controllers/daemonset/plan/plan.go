package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/portion"
)

// Seen is a DaemonSet with its pods at a time. Use Look.
type Seen struct {
	set  *appsv1.DaemonSet
	hash string
	now  time.Time
	// nodes says of each node whether it is to have a pod, and whether one may stay.
	nodes map[string]verdict
	// names are those of the nodes, in their order.
	names []string
	// pods are those of each node, in the order of bound before unbound, older before younger.
	pods map[string][]*corev1.Pod
}

type verdict struct{ run, stay bool }

// Look looks at a DaemonSet, all nodes, and the pods that belong to it. Hash is that of the newest revision.
func Look(d *appsv1.DaemonSet, nodes []*corev1.Node, pods []*corev1.Pod, hash string, now time.Time) *Seen {
	s := &Seen{set: d, hash: hash, now: now,
		nodes: make(map[string]verdict, len(nodes)), pods: make(map[string][]*corev1.Pod, len(nodes))}
	place := PlaceOf(d)
	for _, n := range nodes {
		run, stay := place.Judge(n)
		s.nodes[n.GetMetadata().GetName()] = verdict{run, stay}
	}
	s.names = slices.Sorted(maps.Keys(s.nodes))
	for _, p := range pods {
		if phase.Terminal(p) && deleting(p) {
			continue // it is on its way, which somebody's finalizer holds up
		}
		if node, ok := Target(p); ok {
			s.pods[node] = append(s.pods[node], p)
		}
	}
	for _, list := range s.pods {
		slices.SortFunc(list, older)
	}
	return s
}

// older compares pods: bound before unbound, older before younger, then by name.
func older(a, b *corev1.Pod) int {
	if x, y := a.GetSpec().GetNodeName() != "", b.GetSpec().GetNodeName() != ""; x != y {
		if x {
			return -1
		}
		return 1
	}
	m, n := a.GetMetadata(), b.GetMetadata()
	return cmp.Or(
		cmp.Compare(m.GetCreationTimestamp().GetSeconds(), n.GetCreationTimestamp().GetSeconds()),
		cmp.Compare(m.GetName(), n.GetName()),
	)
}

func deleting(p *corev1.Pod) bool { return p.GetMetadata().GetDeletionTimestamp() != nil }

// updated says whether a pod is made of the newest template.
func (s *Seen) updated(p *corev1.Pod) bool {
	set := p.GetMetadata().GetLabels()
	n, ok := generation(s.set)
	return s.hash != "" && set[HashLabel] == s.hash || ok && set[GenerationLabel] == n
}

func (s *Seen) available(p *corev1.Pod) bool {
	return availability.Available(p, s.set.GetSpec().GetMinReadySeconds(), s.now)
}

// desired returns how many nodes are to have a pod.
func (s *Seen) desired() int {
	n := 0
	for _, v := range s.nodes {
		if v.run {
			n++
		}
	}
	return n
}

// rolling returns the steps of a rolling update; nil for one that is left to others.
func (s *Seen) rolling() *appsv1.RollingUpdateDaemonSet {
	if u := s.set.GetSpec().GetUpdateStrategy(); u.GetType() == "RollingUpdate" {
		return u.GetRollingUpdate()
	}
	return nil
}

// surge returns on how many of some nodes there may be a new pod beside the old one.
func (s *Seen) surge(nodes int) int { return portionOf(s.rolling().GetMaxSurge(), nodes) }

// missing returns on how many of some nodes the pod may be missing.
func (s *Seen) missing(nodes int) int { return portionOf(s.rolling().GetMaxUnavailable(), nodes) }

// portionOf reads a number, or a percentage of nodes. What cannot be read, which the server refuses, is none.
func portionOf(v *metav1.IntOrString, nodes int) int {
	n, err := portion.Up(v, nodes)
	if err != nil {
		return 0
	}
	return n
}
