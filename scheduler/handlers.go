package scheduler

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/resources"
	"monoplane.dev/scheduler/framework"
)

// role says what a pod is to the scheduler.
type role int

const (
	// ignored pods take no room and are not ours to place: terminal, terminating before they were bound, or of another
	// scheduler.
	ignored role = iota
	// pending pods wait for a node.
	pending
	// assigned pods take room on theirs.
	assigned
)

func (s *Scheduler) roleOf(p *corev1.Pod) role {
	switch {
	case phase.Terminal(p):
		return ignored
	case p.GetSpec().GetNodeName() != "":
		return assigned
	case p.GetMetadata().GetDeletionTimestamp() != nil:
		return ignored
	case s.profiles.of(p) != nil:
		return pending
	default:
		return ignored
	}
}

func (s *Scheduler) podAdded(p *corev1.Pod) { s.pod(nil, p) }

func (s *Scheduler) podUpdated(old, p *corev1.Pod) { s.pod(old, p) }

func (s *Scheduler) podDeleted(p *corev1.Pod) {
	m := p.GetMetadata()
	s.queue.Remove(cache.KeyOf(p), m.GetUid())
	s.reporter.forget(m.GetUid())
	s.podGone(p)
}

// podGone takes the end of a pod. Those that wait for its room are tried at once; all others have heard of it before,
// since a higher one goes first.
func (s *Scheduler) podGone(p *corev1.Pod) {
	s.refuseWaiting(p.GetMetadata().GetUid(), podIsGone)
	s.news.Tell(framework.Subject{Kind: framework.PodSubject, Key: cache.KeyOf(p)})
	if !s.state.RemovePod(p.GetMetadata().GetUid()) {
		return
	}
	s.queue.Change(framework.Change{Event: framework.PodGone, OldPod: p})
	for _, waits := range s.state.NominatedTo(p.GetSpec().GetNodeName()) {
		s.queue.Hurry(waits.Key, waits.UID)
	}
}

// pod takes a newer state of a pod; old is nil when it is new.
func (s *Scheduler) pod(old, p *corev1.Pod) {
	was := ignored
	if old != nil {
		was = s.roleOf(old)
	}
	uid := p.GetMetadata().GetUid()
	switch is := s.roleOf(p); is {
	case pending:
		info := framework.NewPodInfo(p)
		if node := p.GetStatus().GetNominatedNodeName(); node != old.GetStatus().GetNominatedNodeName() {
			s.state.Nominate(info, node) // by an earlier scheduler, or it is what we have written
		} else if was == pending && relevant(old, p) {
			s.state.RenewNominated(info)
		}
		if was == pending {
			s.queue.Update(info, relevant(old, p))
		} else {
			s.queue.Add(info)
		}
	case assigned:
		if was == assigned && !relevant(old, p) && !resized(old) && !resized(p) {
			s.state.Renew(p) // a status update: the most frequent event of all
			return
		}
		if was != assigned {
			s.queue.Remove(cache.KeyOf(p), uid)
			s.reporter.forget(uid)
		}
		info := framework.NewPodInfo(p)
		info.Spread = nil // nobody asks where a pod could go that has its node
		s.state.SetPod(info)
		event := framework.PodAssigned
		if was == assigned {
			event = framework.PodShrunk
		}
		s.queue.Change(framework.Change{Event: event, Pod: p, OldPod: old})
	case ignored:
		s.queue.Remove(cache.KeyOf(p), uid)
		s.reporter.forget(uid)
		s.podGone(p)
	}
}

// resized says whether the node holds other amounts for the pod than it asks for.
func resized(p *corev1.Pod) bool { return resources.Held(p) != p.GetSpec() }

// relevant says whether anything changed that a decision could depend on. The generation grows with the spec and with
// the start of a deletion.
func relevant(old, p *corev1.Pod) bool {
	o, n := old.GetMetadata(), p.GetMetadata()
	return o.GetGeneration() != n.GetGeneration() || (o.GetDeletionTimestamp() == nil) !=
		(n.GetDeletionTimestamp() == nil) ||
		!maps.Equal(o.GetLabels(), n.GetLabels()) || len(old.GetSpec().GetSchedulingGates()) !=
		len(p.GetSpec().GetSchedulingGates())
}

func (s *Scheduler) nodeAdded(n *corev1.Node) {
	s.state.SetNode(n)
	s.queue.Change(framework.Change{Event: framework.NodeAdded, Node: n})
}

func (s *Scheduler) nodeUpdated(old, n *corev1.Node) {
	event := nodeChange(old, n)
	if event == 0 {
		s.state.RenewNode(n) // a heartbeat or other images: no pod fits because of it, but bindings name the newest revision
		return
	}
	s.state.SetNode(n)
	for e := framework.NodeAdded; e <= framework.NodeAllocatable; e <<= 1 {
		if event&e != 0 {
			s.queue.Change(framework.Change{Event: e, Node: n, OldNode: old})
		}
	}
}

func (s *Scheduler) nodeDeleted(n *corev1.Node) {
	s.state.RemoveNode(n.GetMetadata().GetName())
	s.queue.Change(framework.Change{Event: framework.NodeGone, OldNode: n})
}

// nodeChange says what of a node has changed that a decision could depend on.
func nodeChange(old, n *corev1.Node) framework.Event {
	var e framework.Event
	if !maps.Equal(old.GetMetadata().GetLabels(), n.GetMetadata().GetLabels()) {
		e |= framework.NodeLabels
	}
	if old.GetSpec().GetUnschedulable() != n.GetSpec().GetUnschedulable() ||
		!slices.EqualFunc(old.GetSpec().GetTaints(), n.GetSpec().GetTaints(),
			func(a, b *corev1.Taint) bool { return proto.Equal(a, b) }) {
		e |= framework.NodeTaints
	}
	if !framework.ParseResources(old.GetStatus().GetAllocatable()).Equal(
		framework.ParseResources(n.GetStatus().GetAllocatable())) {
		e |= framework.NodeAllocatable
	}
	return e
}
