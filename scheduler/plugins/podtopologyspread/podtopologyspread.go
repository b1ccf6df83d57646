// Package podtopologyspread spreads pods evenly over the domains that a node label makes, such as zones (spec: SPREAD-1 to
// SPREAD-3, SPREAD-5). Hard constraints refuse the nodes on which a domain would get too far ahead of the emptiest one; soft
// ones rate nodes.
//
// What makes it fast: the snapshot keeps the count of matching pods for each node, and their sums by domain, up to date as pods
// come and go. A decision adds up by itself only when some nodes do not count for the pod.
//
// What it does not do: constraints by default for pods that belong to a Service or workload (SPREAD-4), which are not served
// yet.
package podtopologyspread

import (
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "PodTopologySpread"

// hostname makes every node a domain of its own.
const hostname = "kubernetes.io/hostname"

// Plugin implements PreFilter, Filter, PreScore, Score and NormalizeScore.
type Plugin struct{ skip, uneven, unlabelled *framework.Status }

// New returns the plugin.
func New() *Plugin {
	const refused = "node(s) didn't match pod topology spread constraints"
	return &Plugin{
		skip:       framework.NewStatus(framework.Skip, Name),
		uneven:     framework.NewStatus(framework.Unschedulable, Name, refused),
		unlabelled: framework.NewStatus(framework.Unresolvable, Name, refused+" (missing required label)"),
	}
}

var (
	_ framework.PreFilter      = (*Plugin)(nil)
	_ framework.Filter         = (*Plugin)(nil)
	_ framework.PreScore       = (*Plugin)(nil)
	_ framework.NormalizeScore = (*Plugin)(nil)
	_ framework.Enqueue        = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// constraints returns the hard or the soft ones.
func constraints(pod *framework.PodInfo, hard bool) []*framework.SpreadConstraint {
	var list []*framework.SpreadConstraint
	for i := range pod.Spread {
		if c := &pod.Spread[i]; c.Hard == hard {
			list = append(list, c)
		}
	}
	return list
}
