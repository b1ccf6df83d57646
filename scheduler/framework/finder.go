package framework

// finder judges the nodes of one decision.
type finder struct {
	profile *Profile
	state   *CycleState
	pod     *PodInfo
	nodes   []*NodeInfo
	skip    uint64
	// some says that these are not all nodes of the snapshot, so that a node's index here is not its place there.
	some bool
	// enough is how many nodes that fit are looked for.
	enough int

	// kept are the answers of the filters local, which come first, by the places of nodes; nil when there are none. An
	// answer is good for a node of its version.
	kept     []kept
	versions []uint64
	local    uint64
}

// recall makes use of the answers for earlier pods of the same template. The nodes must be of the snapshot.
func (f *finder) recall(s *Snapshot) {
	if f.local = f.profile.startLocal(f.skip); f.local == 0 {
		return
	}
	a := s.templates.of(f.profile, f.pod.Pod.GetSpec(), len(s.nodes))
	if a == nil {
		return
	}
	f.kept, f.versions = a.nodes, s.versions
	if f.allLocal() {
		f.state.trial.answers, f.state.trial.versions = a, s.versions
	}
}

// allLocal says whether no other filter has a say.
func (f *finder) allLocal() bool { return f.profile.allFilters&^(f.skip|f.local) == 0 }

// fits judges the i-th node; nil means that the pod fits.
func (f *finder) fits(i int) *Status {
	node, place := f.nodes[i], i
	if f.some {
		place = int(node.place)
	}
	if f.kept == nil || f.versions[place] == 0 {
		return f.profile.fits(f.state, f.pod, node, f.skip)
	}
	k := &f.kept[place]
	if k.version != f.versions[place] {
		s := f.profile.filter(f.state, f.pod, node, f.skip|^f.local)
		if s.Code() == Error {
			return s
		}
		*k = kept{f.versions[place], s}
	}
	if k.status != nil || f.allLocal() {
		return k.status
	}
	return f.profile.filter(f.state, f.pod, node, f.skip|f.local)
}
