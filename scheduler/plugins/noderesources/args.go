package noderesources

import (
	"errors"
	"fmt"
	"strings"

	"monoplane.dev/scheduler/framework"
)

// FitArgs configure the plugin. The zero value is Kubernetes' default: LeastAllocated over cpu and memory.
type FitArgs struct {
	// IgnoredResources and IgnoredResourceGroups (what stands before the slash) name extended resources that are not
	// filtered by, since somebody else sees to them.
	IgnoredResources, IgnoredResourceGroups []string
	// ScoringStrategy says how nodes are rated; nil is the default.
	ScoringStrategy *ScoringStrategy
}

// StrategyType names a way to rate nodes by what would be used of them.
type StrategyType string

// The strategies.
const (
	// LeastAllocated prefers nodes with the most left: pods spread.
	LeastAllocated StrategyType = "LeastAllocated"
	// MostAllocated prefers nodes with the least left: nodes fill up one by one.
	MostAllocated StrategyType = "MostAllocated"
	// RequestedToCapacityRatio rates what is used by a curve.
	RequestedToCapacityRatio StrategyType = "RequestedToCapacityRatio"
)

// ScoringStrategy says how nodes are rated.
type ScoringStrategy struct {
	Type StrategyType
	// Resources are those that count; cpu and memory, equally, when there are none.
	Resources []WeightedResource
	// Shape is the curve of RequestedToCapacityRatio, straight between its points and level outside.
	Shape []Point
}

// WeightedResource is a resource with its weight, 1 to 100.
type WeightedResource struct {
	Name   string
	Weight int64
}

// Point says how good it is, 0 to 10, to have that much of a resource used, 0 to 100 per cent.
type Point struct{ Utilization, Score int64 }

const (
	maxWeight      = 100
	maxUtilization = 100
	maxPointScore  = 10
)

func defaultResources() []WeightedResource {
	return []WeightedResource{{framework.CPU, 1}, {framework.Memory, 1}}
}

// validate lists everything that is wrong, each with the name of its field.
func (a FitArgs) validate() error {
	var errs []error
	for i, name := range a.IgnoredResources {
		if name == "" {
			errs = append(errs, fmt.Errorf("args.ignoredResources[%d]: must not be empty", i))
		}
	}
	for i, group := range a.IgnoredResourceGroups {
		if group == "" || strings.Contains(group, "/") {
			errs = append(errs, fmt.Errorf(
				"args.ignoredResourceGroups[%d]: %q is not what stands before the slash of a resource's name", i, group))
		}
	}
	if a.ScoringStrategy != nil {
		errs = append(errs, a.ScoringStrategy.validate())
	}
	return errors.Join(errs...)
}

func (s *ScoringStrategy) validate() error {
	const at = "args.scoringStrategy."
	var errs []error
	switch s.Type {
	case LeastAllocated, MostAllocated:
		if len(s.Shape) > 0 {
			errs = append(errs, fmt.Errorf("%srequestedToCapacityRatio.shape: is for type %s only", at,
				RequestedToCapacityRatio))
		}
	case RequestedToCapacityRatio:
		errs = append(errs, wrongShape(at+"requestedToCapacityRatio.shape", s.Shape))
	default:
		errs = append(errs, fmt.Errorf("%stype: %q is none of %s, %s, %s", at, s.Type, LeastAllocated, MostAllocated,
			RequestedToCapacityRatio))
	}
	seen := map[string]bool{}
	for i, r := range s.Resources {
		path := fmt.Sprintf("%sresources[%d]", at, i)
		switch {
		case r.Name == "":
			errs = append(errs, fmt.Errorf("%s.name: must not be empty", path))
		case seen[r.Name]:
			errs = append(errs, fmt.Errorf("%s.name: %q is listed twice", path, r.Name))
		}
		seen[r.Name] = true
		if r.Weight < 1 || r.Weight > maxWeight {
			errs = append(errs, fmt.Errorf("%s.weight: %d is not within 1..%d", path, r.Weight, maxWeight))
		}
	}
	return errors.Join(errs...)
}

func wrongShape(path string, shape []Point) error {
	if len(shape) == 0 {
		return fmt.Errorf("%s: at least one point is needed", path)
	}
	var errs []error
	for i, p := range shape {
		at := fmt.Sprintf("%s[%d]", path, i)
		if p.Utilization < 0 || p.Utilization > maxUtilization {
			errs = append(errs, fmt.Errorf("%s.utilization: %d is not within 0..%d", at, p.Utilization, maxUtilization))
		}
		if i > 0 && p.Utilization <= shape[i-1].Utilization {
			errs = append(errs, fmt.Errorf("%s.utilization: %d is not more than the %d before it", at, p.Utilization,
				shape[i-1].Utilization))
		}
		if p.Score < 0 || p.Score > maxPointScore {
			errs = append(errs, fmt.Errorf("%s.score: %d is not within 0..%d", at, p.Score, maxPointScore))
		}
	}
	return errors.Join(errs...)
}
