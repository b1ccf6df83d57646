package framework

import (
	"fmt"
	"strings"
)

// Points is a set of extension points.
type Points uint16

// The extension points. NormalizeScore goes with Score.
const (
	AtPreEnqueue Points = 1 << iota
	AtQueueSort
	AtPreFilter
	AtFilter
	AtPostFilter
	AtPreScore
	AtScore
	AtReserve
	AtPermit
	AtPreBind
	AtBind
	AtPostBind
)

var pointNames = [...]string{
	"PreEnqueue", "QueueSort", "PreFilter", "Filter", "PostFilter", "PreScore", "Score",
	"Reserve", "Permit", "PreBind", "Bind", "PostBind",
}

// String names the points.
func (p Points) String() string {
	var names []string
	for i, name := range pointNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Implemented returns the points that a plugin implements.
func Implemented(p Plugin) Points {
	return at[PreEnqueue](p, AtPreEnqueue) | at[QueueSort](p, AtQueueSort) | at[PreFilter](p, AtPreFilter) |
		at[Filter](p, AtFilter) |
		at[PostFilter](p, AtPostFilter) | at[PreScore](p, AtPreScore) | at[Score](p, AtScore) | at[Reserve](p, AtReserve) |
		at[Permit](p, AtPermit) | at[PreBind](p, AtPreBind) | at[Bind](p, AtBind) | at[PostBind](p, AtPostBind)
}

func at[T Plugin](p Plugin, point Points) Points {
	if _, ok := p.(T); ok {
		return point
	}
	return 0
}

// wholePairs refuses a plugin that would filter or score without what its PreFilter or PreScore works out: it would
// let every node pass, or rate all alike, and nobody would see why.
func wholePairs(profile string, p Plugin, enabled Points) (errs []error) {
	for _, pair := range [...]struct{ before, after Points }{{AtPreFilter, AtFilter}, {AtPreScore, AtScore}} {
		if enabled&pair.after != 0 && enabled&pair.before == 0 && Implemented(p)&pair.before != 0 {
			errs = append(errs, fmt.Errorf("profile %s: plugin %s is enabled at %s but not at %s, which comes before it",
				profile, p.Name(), pair.after, pair.before))
		}
	}
	return errs
}
