package framework

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	corev1 "monoplane.dev/api/core/v1"
)

// Group is what pods belong to together: a Service, a ReplicaSet, a StatefulSet or a ReplicationController (spec:
// SPREAD-4).
type Group struct {
	Namespace string
	// Selector says which pods of the namespace it is about. A Service without one has no pods, and is no group.
	// Invariant: it is not nil.
	Selector labels.Selector
	// Service says that the selected pods belong to it. To a workload belongs the pod that has it for its controller.
	Service bool
	// APIVersion, Kind and Name are those by which owner references name a workload.
	APIVersion, Kind, Name string
}

// groups finds those of a pod.
type groups struct {
	// services are filed by a label that they require, as terms are; under no key when they require none.
	services  map[termPlace][]*Group
	workloads map[workloadName]*Group
}

type workloadName struct{ namespace, apiVersion, kind, name string }

// SetGroups takes the groups of the cluster. It must not be called during a decision.
func (s *Snapshot) SetGroups(list []*Group) {
	s.groups = groups{services: map[termPlace][]*Group{}, workloads: map[workloadName]*Group{}}
	for _, g := range list {
		if !g.Service {
			s.groups.workloads[workloadName{g.Namespace, g.APIVersion, g.Kind, g.Name}] = g
			continue
		}
		for _, at := range g.places() {
			s.groups.services[at] = append(s.groups.services[at], g)
		}
	}
}

// places returns where a Service is filed. A pod looks at each of these at most once.
func (g *Group) places() []termPlace {
	requirements, _ := g.Selector.Requirements()
	for _, r := range requirements {
		if op := r.Operator(); op != selection.Equals && op != selection.DoubleEquals && op != selection.In {
			continue
		}
		var places []termPlace
		for v := range r.Values() {
			places = append(places, termPlace{g.Namespace, r.Key(), v})
		}
		return places
	}
	return []termPlace{{namespace: g.Namespace}}
}

// Groups returns the groups that a pod belongs to, in no order: the Services that select it, and its controller.
func (s *Snapshot) Groups(pod *corev1.Pod) []*Group {
	if len(s.groups.services)+len(s.groups.workloads) == 0 {
		return nil
	}
	m := pod.GetMetadata()
	var list []*Group
	look := func(at termPlace) {
		for _, g := range s.groups.services[at] {
			if g.Selector.Matches(labels.Set(m.GetLabels())) {
				list = append(list, g)
			}
		}
	}
	if len(s.groups.services) > 0 {
		look(termPlace{namespace: m.GetNamespace()})
		for k, v := range m.GetLabels() {
			look(termPlace{m.GetNamespace(), k, v})
		}
	}
	for _, o := range m.GetOwnerReferences() {
		if !o.GetController() {
			continue
		}
		if g, ok := s.groups.workloads[workloadName{m.GetNamespace(), o.GetApiVersion(), o.GetKind(), o.GetName()}]; ok {
			list = append(list, g)
		}
		break // there is only one
	}
	return list
}

// NewGroupQuery returns the query of the pods that all the groups, which are of one namespace, select; nil when they
// require nothing. Pods that are about to go do not count. Groups in another order make an equal query.
func NewGroupQuery(namespace string, list []*Group) *PodQuery {
	var all []labels.Requirement
	for _, g := range list {
		requirements, _ := g.Selector.Requirements()
		all = append(all, requirements...)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b labels.Requirement) int {
		return cmp.Or(cmp.Compare(a.Key(), b.Key()), cmp.Compare(a.String(), b.String()))
	})
	all = slices.CompactFunc(all, func(a, b labels.Requirement) bool { return a.String() == b.String() })
	q := &PodQuery{namespaces: []string{namespace}, selector: labels.NewSelector().Add(all...)}
	q.text = namespace + "/" + textOf(q.selector)
	return q
}
