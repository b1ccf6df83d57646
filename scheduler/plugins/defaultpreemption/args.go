package defaultpreemption

import (
	"errors"
	"fmt"
)

// Args say how many nodes are tried for victims: the larger of a share of those that it could help and a number.
type Args struct {
	// MinCandidateNodesPercentage is 0 to 100.
	MinCandidateNodesPercentage int32 `json:"minCandidateNodesPercentage"`
	// MinCandidateNodesAbsolute is not negative. Not both may be 0.
	MinCandidateNodesAbsolute int32 `json:"minCandidateNodesAbsolute"`
}

// DefaultArgs are Kubernetes' defaults.
func DefaultArgs() Args { return Args{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100} }

// Validate lists everything that is wrong, each with the name of its field.
func (a Args) Validate() error {
	var errs []error
	if p := a.MinCandidateNodesPercentage; p < 0 || p > 100 {
		errs = append(errs, fmt.Errorf("args.minCandidateNodesPercentage: %d is not within 0..100", p))
	}
	if n := a.MinCandidateNodesAbsolute; n < 0 {
		errs = append(errs, fmt.Errorf("args.minCandidateNodesAbsolute: %d is negative", n))
	}
	if a.MinCandidateNodesPercentage == 0 && a.MinCandidateNodesAbsolute == 0 {
		errs = append(errs, errors.New(
			"args.minCandidateNodesPercentage: must not be 0 together with minCandidateNodesAbsolute"))
	}
	return errors.Join(errs...)
}

// candidates returns how many candidates are enough among that many nodes that removing pods could help.
func (a Args) candidates(nodes int) int {
	return min(nodes, max(int(int64(nodes)*int64(a.MinCandidateNodesPercentage)/100), int(a.MinCandidateNodesAbsolute)))
}
