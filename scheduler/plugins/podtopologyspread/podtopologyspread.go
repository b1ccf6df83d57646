// Package podtopologyspread spreads pods evenly over the domains that a node label makes, such as zones (spec:
// SPREAD-1 to SPREAD-5). Hard constraints refuse the nodes on which a domain would get too far ahead of the emptiest
// one; soft ones rate nodes. Pods without constraints that belong to a Service or workload have those that the plugin
// is configured with.
//
// What makes it fast: the snapshot keeps the count of matching pods for each node, and their sums by domain, up to
// date as pods come and go. A decision adds up by itself only when some nodes do not count for the pod.
package podtopologyspread

import (
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "PodTopologySpread"

const (
	// hostname makes every node a domain of its own.
	hostname = "kubernetes.io/hostname"
	zone     = "topology.kubernetes.io/zone"
)

// Plugin implements PreFilter, Filter, PreScore, Score and NormalizeScore.
type Plugin struct {
	defaults                 defaults
	skip, uneven, unlabelled *framework.Status
}

// New returns the plugin with System defaults.
func New() *Plugin { return with(systemDefaults()) }

// NewWith returns the plugin as it is configured.
func NewWith(a Args) (*Plugin, error) {
	if err := a.validate(); err != nil {
		return nil, err
	}
	if a.DefaultingType == List {
		return with(listDefaults(a.DefaultConstraints)), nil
	}
	return New(), nil
}

func with(d defaults) *Plugin {
	const refused = "node(s) didn't match pod topology spread constraints"
	return &Plugin{
		defaults:   d,
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

// constraints returns the hard or the soft ones; those by default only if the pod has none of either kind itself.
func (p *Plugin) constraints(
	pod *framework.PodInfo, snapshot *framework.Snapshot, hard bool,
) []*framework.SpreadConstraint {
	if len(pod.Spread) == 0 {
		return p.defaults.constraints(pod, snapshot, hard)
	}
	var list []*framework.SpreadConstraint
	for i := range pod.Spread {
		if c := &pod.Spread[i]; c.Hard == hard {
			list = append(list, c)
		}
	}
	return list
}
