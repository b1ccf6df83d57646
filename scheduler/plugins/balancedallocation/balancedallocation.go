// Package balancedallocation prefers nodes on which the pod evens out how much of each resource is requested (spec:
// SCHED-5, NodeResourcesBalancedAllocation), so that no node runs out of memory with most of its cpu left, or the
// other way round.
//
// The balance of a node is 100 * (1 - standard deviation) of the fractions of its resources that are requested, 50 to
//  100. What counts is how the pod changes it: 75 is no change, 100 the best improvement, 50 the worst damage. Unlike
//     NodeResourcesFit it
//
// takes requests as they are: a container without any counts nothing.
package balancedallocation

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "NodeResourcesBalancedAllocation"

// Args configure the plugin.
type Args struct {
	// Resources are those to balance; cpu and memory when there are none. Their weights are all 1.
	Resources []string
}

// Plugin implements PreScore and Score.
type Plugin struct {
	resources []string
	// usual says that they are cpu and memory, for which there is a shorter way.
	usual bool
	skip  *framework.Status
}

// New returns the plugin.
func New(args Args) (*Plugin, error) {
	var errs []error
	for i, name := range args.Resources {
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("args.resources[%d].name: must not be empty", i))
		case slices.Contains(args.Resources[:i], name):
			errs = append(errs, fmt.Errorf("args.resources[%d].name: %q is listed twice", i, name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p := &Plugin{resources: slices.Clone(args.Resources), skip: framework.NewStatus(framework.Skip, Name)}
	if len(p.resources) == 0 {
		p.resources = []string{framework.CPU, framework.Memory}
	}
	p.usual = len(p.resources) == 2 && slices.Contains(p.resources, framework.CPU) &&
		slices.Contains(p.resources, framework.Memory)
	return p, nil
}

var (
	_ framework.PreScore = (*Plugin)(nil)
	_ framework.Score    = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// PreScore skips pods that request none of the resources: they change no balance, and would all go to one node.
func (p *Plugin) PreScore(_ *framework.CycleState, pod *framework.PodInfo, _ []*framework.NodeInfo) *framework.Status {
	for _, name := range p.resources {
		if pod.Requests.Amount(name) != 0 {
			return nil
		}
	}
	return p.skip
}

// Score rates the change of the node's balance.
func (p *Plugin) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	var with, without int64
	if p.usual {
		with, without = usual(pod, node)
	} else {
		with, without = p.balance(pod, node, true), p.balance(pod, node, false)
	}
	return framework.MaxScore/2 + (framework.MaxScore/2+with-without)/2
}

// usual is balance for cpu and memory, both with and without the pod.
func usual(pod *framework.PodInfo, node *framework.NodeInfo) (with, without int64) {
	have, used, need := &node.Allocatable, &node.Requested, &pod.Requests
	if have.MilliCPU == 0 || have.Memory == 0 {
		return framework.MaxScore, framework.MaxScore
	}
	with = rate(math.Abs(fraction(used.MilliCPU, need.MilliCPU, have.MilliCPU)-fraction(used.Memory, need.Memory,
		have.Memory)) / 2)
	without = rate(math.Abs(fraction(used.MilliCPU, 0, have.MilliCPU)-fraction(used.Memory, 0, have.Memory)) / 2)
	return with, without
}

// balance rates the node with or without the pod. Resources that the node lacks do not count, nor those other than
// cpu, memory and ephemeral storage for which the pod does not ask.
func (p *Plugin) balance(pod *framework.PodInfo, node *framework.NodeInfo, with bool) int64 {
	fractions := make([]float64, 0, 8) // on the stack
	for _, name := range p.resources {
		need, have := pod.Requests.Amount(name), node.Allocatable.Amount(name)
		if have == 0 || need == 0 && !framework.IsBasic(name) {
			continue
		}
		if !with {
			need = 0
		}
		fractions = append(fractions, fraction(node.Requested.Amount(name), need, have))
	}
	return rate(deviation(fractions))
}

// deviation is the standard deviation. Two fractions have their own formula, so that rounding is the same as in usual.
func deviation(fractions []float64) float64 {
	switch len(fractions) {
	case 0, 1:
		return 0
	case 2:
		return math.Abs(fractions[0]-fractions[1]) / 2
	}
	var mean, squares float64
	for _, f := range fractions {
		mean += f
	}
	mean /= float64(len(fractions))
	for _, f := range fractions {
		squares += (f - mean) * (f - mean)
	}
	return math.Sqrt(squares / float64(len(fractions)))
}

// fraction is at most 1. The sum of two floats does not overflow.
func fraction(used, need, have int64) float64 {
	return min(1, (float64(used)+float64(need))/float64(have))
}

func rate(deviation float64) int64 { return int64((1 - deviation) * framework.MaxScore) }
