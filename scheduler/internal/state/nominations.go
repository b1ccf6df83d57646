package state

import (
	"slices"

	"monoplane.dev/scheduler/framework"
)

// nomination is room that is kept on a node for a pending pod (spec: PREEMPT-2).
type nomination struct {
	pod  *framework.PodInfo
	node string
}

// Nominate keeps room for a pending pod on a node; no node takes that back.
func (s *State) Nominate(p *framework.PodInfo, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nominate(p, node)
}

func (s *State) nominate(p *framework.PodInfo, node string) {
	s.unnominate(p.UID)
	if node == "" {
		return
	}
	s.nominated[p.UID] = nomination{p, node}
	s.moved[p.UID] = struct{}{}
	if _, counted := s.pods[p.UID]; !counted {
		s.keep(p, node)
	}
}

// RenewNominated takes a newer state of a pending pod that room may be kept for.
func (s *State) RenewNominated(p *framework.PodInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nominate(p, s.nominated[p.UID].node)
}

// Nominated returns the node that room is kept on for a pod, "" for none.
func (s *State) Nominated(uid string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nominated[uid].node
}

// NominatedTo returns the pods that room is kept for on a node.
func (s *State) NominatedTo(node string) []*framework.PodInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node(node).Nominated
}

// Doom says that a pod is about to be deleted to make room for another, or is not any more.
func (s *State) Doom(uid string, doomed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pods[uid]; ok && e.info.Doomed != doomed {
		e.info = e.info.AsDoomed(doomed)
		s.set(s.node(e.node).WithPodUpdated(e.info))
	}
}

func (s *State) unnominate(uid string) {
	n, ok := s.nominated[uid]
	if !ok {
		return
	}
	s.unkeep(uid, n.node)
	delete(s.nominated, uid)
	s.moved[uid] = struct{}{}
}

// keep and unkeep say on the node that room is kept there.
func (s *State) keep(p *framework.PodInfo, node string) {
	n := s.node(node)
	s.set(n.WithNominated(append(slices.Clone(n.Nominated), p)))
}

func (s *State) unkeep(uid, node string) {
	n := s.node(node)
	if i := slices.IndexFunc(n.Nominated, func(p *framework.PodInfo) bool { return p.UID == uid }); i >= 0 {
		s.set(n.WithNominated(slices.Concat(n.Nominated[:i], n.Nominated[i+1:])))
	}
}
