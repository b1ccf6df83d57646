// Package interpodaffinity places pods near to or away from other pods, where near is a domain that a node label makes
// (spec: SCHED-4, SCHED-5). It honors the terms of the pod that is placed and those of the pods that are there
// already: their required anti-affinity refuses nodes, too, and what they prefer rates nodes.
//
// What it guarantees: the first pod of a group that wants to be near to its own kind may go to any node that has the
// labels. Pods that are about to go count as long as they are there.
//
// What makes it fast: the snapshot keeps the counts of the pods that a term selects, and the weights of the terms in
// use, by domain and up to date as pods come and go. A decision looks at each distinct term once, and at no pod.
//
// What it does not do: it does not enforce anything on pods that have a node already.
package interpodaffinity

import (
	"fmt"

	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "InterPodAffinity"

// Args are the plugin's arguments.
type Args struct {
	// HardPodAffinityWeight is what a required term of affinity of a pod that is there adds to the nodes near to it, for
	// the pods that it selects: 0 to 100, 1 when nil.
	HardPodAffinityWeight *int32
	// IgnorePreferredTermsOfExistingPods leaves pods that prefer nothing themselves without scores.
	IgnorePreferredTermsOfExistingPods bool
}

// Plugin implements PreFilter, Filter, PreScore, Score and NormalizeScore.
type Plugin struct {
	hardWeight     int64
	ignoreExisting bool

	skip, far, near, repelled *framework.Status
}

// New returns the plugin, or what is wrong with its arguments.
func New(args Args) (*Plugin, error) {
	weight := int32(1)
	if args.HardPodAffinityWeight != nil {
		weight = *args.HardPodAffinityWeight
	}
	if weight < 0 || weight > 100 {
		return nil, fmt.Errorf("args.hardPodAffinityWeight: %d is not within 0..100", weight)
	}
	return &Plugin{
		hardWeight:     int64(weight),
		ignoreExisting: args.IgnorePreferredTermsOfExistingPods,
		skip:           framework.NewStatus(framework.Skip, Name),
		far:            framework.NewStatus(framework.Unresolvable, Name, "node(s) didn't match pod affinity rules"),
		near:           framework.NewStatus(framework.Unschedulable, Name, "node(s) didn't match pod anti-affinity rules"),
		repelled: framework.NewStatus(framework.Unschedulable, Name,
			"node(s) didn't satisfy existing pods anti-affinity rules"),
	}, nil
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
