// Package state is the scheduler's picture of the cluster: the nodes with their pods, those that are only assumed to
// be there included (spec: SCHED-3), and the room that is kept on nodes for pods that wait (spec: PREEMPT-2).
//
//	  Assume            the binding is seen (SetPod)
//	-----------> assumed -----------------------> confirmed
//	                |                                 |
//	                | Forget: the binding failed      | RemovePod: deleted or terminal
//	                v                                 v
//	              gone                              gone
//
// What it guarantees: a pod counts on exactly one node; an assumed pod counts until its binding is seen or has failed,
// so that two decisions never give away the same room; Update brings a snapshot up to date at the cost of what has
// changed.
package state

import (
	"maps"
	"slices"
	"sync"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
)

// State is the picture. All methods may be called from any goroutine.
type State struct {
	mu    sync.Mutex
	nodes map[string]*framework.NodeInfo
	pods  map[string]*entry // by uid
	dirty map[string]struct{}

	namespaces namespaces
	budgets    budgets
	volumes    volumes
	groups     groups
	// nominated are the nominations by uid, moved the uids whose nomination the snapshot may not know yet. A nominated
	// pod that is assumed takes its room as such.
	nominated map[string]nomination
	moved     map[string]struct{}
}

type entry struct {
	info    *framework.PodInfo
	node    string
	assumed bool
}

// New returns an empty picture.
func New() *State {
	return &State{
		nodes: map[string]*framework.NodeInfo{}, pods: map[string]*entry{}, dirty: map[string]struct{}{},
		namespaces: namespaces{},
		budgets:    budgets{all: map[cache.Key]*framework.Budget{}},
		volumes:    newVolumes(),
		groups:     groups{all: map[groupName]*framework.Group{}},
		nominated:  map[string]nomination{}, moved: map[string]struct{}{},
	}
}

// SetNode adds a node or takes its newer state.
func (s *State) SetNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := n.GetMetadata().GetName()
	if old, ok := s.nodes[name]; ok {
		s.set(old.WithNode(n))
		return
	}
	s.set(framework.NewNodeInfo(name, n))
}

// RenewNode takes a newer state of a node in which nothing has changed that could make a pod fit, so that decisions
// name the newest revision and know the node's images.
func (s *State) RenewNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.nodes[n.GetMetadata().GetName()]; ok {
		s.set(old.Renewed(n))
	}
}

// RemoveNode forgets a node's object. Its pods stay counted, in case it comes back, but nothing is put there.
func (s *State) RemoveNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.nodes[name]; ok {
		s.set(old.WithNode(nil))
	}
}

// set stores a node, or drops one that has neither object nor pods nor nominations.
func (s *State) set(n *framework.NodeInfo) {
	s.dirty[n.Name] = struct{}{}
	if n.Node == nil && len(n.Pods()) == 0 && len(n.Nominated) == 0 {
		delete(s.nodes, n.Name)
		return
	}
	s.nodes[n.Name] = n
}

func (s *State) node(name string) *framework.NodeInfo {
	if n, ok := s.nodes[name]; ok {
		return n
	}
	return framework.NewNodeInfo(name, nil)
}

// SetPod takes the state of a bound pod: it confirms an assumed one, adds an unknown one, updates a known one.
func (s *State) SetPod(p *framework.PodInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := p.Pod.GetSpec().GetNodeName()
	s.unnominate(p.UID)
	if e, ok := s.pods[p.UID]; ok {
		if e.node == node {
			if e.info.Doomed {
				p = p.AsDoomed(true)
			}
			e.info, e.assumed = p, false
			s.set(s.node(node).WithPodUpdated(p))
			return
		}
		s.remove(e) // it was bound elsewhere than we assumed
	}
	s.add(p, node, false)
}

// Renew takes a newer state of a pod in which nothing has changed that a decision depends on, so that the older one,
// which would be kept otherwise, can go.
func (s *State) Renew(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pods[p.GetMetadata().GetUid()]; ok {
		e.info = e.info.WithPod(p)
		s.set(s.node(e.node).WithPodUpdated(e.info))
	}
}

// Assume counts a pod on the node that was picked for it. It returns false when the pod is counted already.
func (s *State) Assume(p *framework.PodInfo, node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pods[p.UID]; ok {
		return false
	}
	s.unkeep(p.UID, s.nominated[p.UID].node)
	s.add(p, node, true)
	return true
}

// Forget takes back an assumption, unless the binding has been seen meanwhile.
func (s *State) Forget(p *framework.PodInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pods[p.UID]; ok && e.assumed {
		s.remove(e)
		if n, ok := s.nominated[p.UID]; ok {
			s.keep(n.pod, n.node)
		}
	}
}

// RemovePod forgets a pod that was deleted or has ended. It returns whether there is more room now: the pod was
// counted, or room was kept for it.
func (s *State) RemovePod(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, kept := s.nominated[uid]
	s.unnominate(uid)
	e, counted := s.pods[uid]
	if counted {
		s.remove(e)
	}
	return counted || kept
}

func (s *State) add(p *framework.PodInfo, node string, assumed bool) {
	s.pods[p.UID] = &entry{info: p, node: node, assumed: assumed}
	s.set(s.node(node).WithPod(p))
}

func (s *State) remove(e *entry) {
	s.volumes.forget(e.info.UID)
	delete(s.pods, e.info.UID)
	s.set(s.node(e.node).WithoutPod(e.info.UID))
}

// Update brings a snapshot that only this method changes up to date.
func (s *State) Update(snapshot *framework.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.dirty)) { // so that choices repeat with the seed
		n := s.nodes[name]
		if n != nil && n.Node == nil {
			n = nil // pods without a node are no place for others
		}
		snapshot.Set(name, n)
	}
	clear(s.dirty)
	for uid := range s.moved {
		snapshot.SetNominated(uid, s.nominated[uid].node)
	}
	clear(s.moved)
	s.namespaces.update(snapshot)
	s.budgets.update(snapshot)
	s.volumes.update(snapshot)
	s.groups.update(snapshot)
}

// Assumed returns how many pods are assumed, for metrics.
func (s *State) Assumed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.pods {
		if e.assumed {
			n++
		}
	}
	return n
}
