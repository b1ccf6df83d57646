package framework

import "slices"

// NodeIndex is something that a snapshot keeps up to date about its nodes and their pods, at the cost of what changes:
// the counters, topologies and terms of this package, and whatever plugins keep for themselves (see Snapshot.Index).
//
// It is told between decisions, so that a decision finds it as true as the snapshot is. It must be quick, and must not
// ask the snapshot meanwhile. It may number the nodes by their places, as NodeInfo.Place returns them.
type NodeIndex interface {
	// Added takes a node that has come, with the pods that it has. Its place is behind all others.
	Added(n *NodeInfo)
	// Changed takes a newer state of a node, in the same place. Went are the pods that are gone or in an older state,
	// came those that are new or in a newer state: a pod whose labels or phase have changed is in both.
	Changed(was, now *NodeInfo, went, came []*PodInfo)
	// Removed takes a node that has gone, with the pods that it had. The last node, unless this is the last, has its
	// place from now on.
	Removed(n *NodeInfo)
}

// maxPluginIndexes bounds the indexes of plugins: with more than that in use, the one that has not been asked for the
// longest is made anew.
const maxPluginIndexes = 64

// Index returns the index that the snapshot keeps under a key, which is of a type private to the plugin. When it has
// none yet, or has dropped it, it makes one and tells it of all nodes. It is for plugins whose answers would take a
// look at every node or pod. What it returns is valid for one decision, on the decision loop, and only the snapshot
// changes it: two clusters, or a decision that is only tried out, have snapshots of their own.
//
// Assumed pods are on their nodes. What a Filter is asked about can differ from the snapshot, and so from an index:
// see CycleState.WhatIf.
//
// An index that panics is dropped, and fails the next decision that asks for it.
func (s *Snapshot) Index(key any, make func() NodeIndex) NodeIndex {
	s.last()
	x, ok := s.byPlugin[key]
	switch {
	case !ok:
		if len(s.byPlugin) == maxPluginIndexes {
			s.forgetIndex(s.byPlugin.oldest())
		}
		x = &pluginIndex{NodeIndex: make(), key: key}
		for _, n := range s.nodes {
			x.NodeIndex.Added(n)
		}
		s.byPlugin[key] = x
		s.indexes = append(s.indexes, x)
	case x.failure != nil:
		s.forgetIndex(x)
		panic(x.failure)
	}
	s.asked++
	x.used = s.asked
	return x.NodeIndex
}

func (s *Snapshot) forgetIndex(x *pluginIndex) {
	delete(s.byPlugin, x.key)
	s.indexes = slices.DeleteFunc(s.indexes, func(o NodeIndex) bool { return o == NodeIndex(x) })
}

// pluginIndexes finds the indexes of plugins by their keys.
type pluginIndexes map[any]*pluginIndex

// oldest returns the one that has not been asked for the longest.
func (x pluginIndexes) oldest() *pluginIndex {
	var oldest *pluginIndex
	for _, i := range x {
		if oldest == nil || i.used < oldest.used {
			oldest = i
		}
	}
	return oldest
}

// pluginIndex is the index of a plugin, whose panics it keeps away from the scheduler.
type pluginIndex struct {
	NodeIndex
	key any
	// used is when it was asked for last.
	used uint64
	// failure is the panic that ended it, nil for none. It is told nothing any more then.
	failure error
}

// Added hands over to the plugin's index, unless that has failed.
func (x *pluginIndex) Added(n *NodeInfo) {
	if x.failure == nil {
		defer func() { x.failure = caught(recover()) }()
		x.NodeIndex.Added(n)
	}
}

// Changed hands over to the plugin's index, unless that has failed.
func (x *pluginIndex) Changed(was, now *NodeInfo, went, came []*PodInfo) {
	if x.failure == nil {
		defer func() { x.failure = caught(recover()) }()
		x.NodeIndex.Changed(was, now, went, came)
	}
}

// Removed hands over to the plugin's index, unless that has failed.
func (x *pluginIndex) Removed(n *NodeInfo) {
	if x.failure == nil {
		defer func() { x.failure = caught(recover()) }()
		x.NodeIndex.Removed(n)
	}
}
