package noderesources

import (
	"math/bits"
	"slices"

	"monoplane.dev/scheduler/framework"
)

// rating rates nodes by any strategy but the default one, which has a shorter way (see usual).
type rating struct {
	resources []WeightedResource
	// one rates one resource by what would be used of it, which is never more than the capacity.
	one func(used, capacity int64) int64
	// zeroIsSilent leaves resources that are rated 0 out of the mean, and rounds it, as RequestedToCapacityRatio does.
	zeroIsSilent bool
}

// newRating returns nil for the default strategy.
func newRating(s *ScoringStrategy) *rating {
	if s == nil {
		return nil
	}
	r := &rating{resources: slices.Clone(s.Resources)}
	if len(r.resources) == 0 {
		r.resources = defaultResources()
	}
	switch s.Type {
	case MostAllocated:
		r.one = mostAllocated
	case RequestedToCapacityRatio:
		r.one, r.zeroIsSilent = curve(slices.Clone(s.Shape)), true
	default:
		if isUsual(r.resources) {
			return nil
		}
		r.one = leastAllocated
	}
	return r
}

// isUsual says whether the resources are cpu and memory, equally.
func isUsual(list []WeightedResource) bool {
	if len(list) != 2 || list[0].Weight != list[1].Weight {
		return false
	}
	a, b := list[0].Name, list[1].Name
	return a == framework.CPU && b == framework.Memory || a == framework.Memory && b == framework.CPU
}

// score is the weighted mean over the resources that the node has. Resources other than cpu, memory and ephemeral
// storage matter to pods that ask for them only.
func (r *rating) score(pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	var sum, weights int64
	for _, res := range r.resources {
		capacity, used, need := node.Allocatable.Amount(res.Name), node.Counted.Amount(res.Name),
			pod.Counted.Amount(res.Name)
		if capacity <= 0 || need == 0 && !framework.IsBasic(res.Name) {
			continue
		}
		if need > capacity-used { // the sum could overflow
			used = capacity - need
		}
		score := r.one(used+need, capacity)
		if score == 0 && r.zeroIsSilent {
			continue
		}
		sum += score * res.Weight
		weights += res.Weight
	}
	switch {
	case weights == 0:
		return 0
	case r.zeroIsSilent:
		return (2*sum + weights) / (2 * weights) // rounded
	default:
		return sum / weights
	}
}

func leastAllocated(used, capacity int64) int64 { return percent(capacity-used, capacity) }

func mostAllocated(used, capacity int64) int64 { return percent(used, capacity) }

// percent returns how many whole per cents part is of all, which must be more than 0 and not less than part. The
// product may need more than 64 bits.
func percent(part, all int64) int64 {
	hi, lo := bits.Mul64(uint64(part), 100) //nolint:gosec // not negative
	q, _ := bits.Div64(hi, lo, uint64(all)) //nolint:gosec // positive
	return int64(q)                         //nolint:gosec // at most 100
}

// curve returns the function that is straight between the points of the shape.
func curve(shape []Point) func(used, capacity int64) int64 {
	const scale = framework.MaxScore / maxPointScore
	return func(used, capacity int64) int64 {
		u := percent(used, capacity)
		i := slices.IndexFunc(shape, func(p Point) bool { return u <= p.Utilization })
		switch i {
		case 0:
			return shape[0].Score * scale
		case -1:
			return shape[len(shape)-1].Score * scale
		}
		a, b := shape[i-1], shape[i]
		return a.Score*scale + (b.Score-a.Score)*scale*(u-a.Utilization)/(b.Utilization-a.Utilization)
	}
}
