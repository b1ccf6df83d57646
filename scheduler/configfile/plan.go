package configfile

import (
	"fmt"
	"slices"

	"monoplane.dev/scheduler/framework"
)

// all stands for all plugins among the disabled ones.
const all = "*"

// place is a plugin where a profile enables it. path is empty for the defaults.
type place struct {
	pluginEntry
	path string
}

// pointSet is what a profile says about one extension point.
type pointSet struct {
	point framework.Points
	name  string
	set   *pluginSet
}

// points returns the extension points, in the order in which they run.
func (p *pluginsShape) points() []pointSet {
	return []pointSet{
		{framework.AtPreEnqueue, "preEnqueue", &p.PreEnqueue},
		{framework.AtQueueSort, "queueSort", &p.QueueSort},
		{framework.AtPreFilter, "preFilter", &p.PreFilter},
		{framework.AtFilter, "filter", &p.Filter},
		{framework.AtPostFilter, "postFilter", &p.PostFilter},
		{framework.AtPreScore, "preScore", &p.PreScore},
		{framework.AtScore, "score", &p.Score},
		{framework.AtReserve, "reserve", &p.Reserve},
		{framework.AtPermit, "permit", &p.Permit},
		{framework.AtPreBind, "preBind", &p.PreBind},
		{framework.AtBind, "bind", &p.Bind},
		{framework.AtPostBind, "postBind", &p.PostBind},
	}
}

// placed returns the enabled plugins of a set with their paths.
func (s *pluginSet) placed(path string) []place {
	var list []place
	for i, e := range s.Enabled {
		list = append(list, place{e, fmt.Sprintf("%s.enabled[%d]", path, i)})
	}
	return list
}

func (s *pluginSet) disables(name string) bool {
	return slices.ContainsFunc(s.Disabled, func(e pluginEntry) bool { return e.Name == name || e.Name == all })
}

func find(list []place, name string) *place {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// everywhere returns the plugins of multiPoint: the defaults that are not disabled, each replaced in its place when it
// is enabled anew, and then the others.
func everywhere(base []pluginEntry, set *pluginSet, path string) []place {
	own := set.placed(path)
	var list []place
	for _, e := range base {
		if set.disables(e.Name) {
			continue
		}
		if p := find(own, e.Name); p != nil {
			list = append(list, *p)
		} else {
			list = append(list, place{pluginEntry: e})
		}
	}
	for _, p := range own {
		if find(list, p.Name) == nil {
			list = append(list, p)
		}
	}
	return list
}

// here returns the plugins of one point in their order: those that it enables itself although multiPoint does, in its
// own order, the others of multiPoint, and then the other ones of its own. implemented says whether a plugin has the
// point at all.
func here(multi []place, s pointSet, path string, implemented func(name string) bool) []place {
	own := s.set.placed(path)
	var overrides, inherited, others []place
	inherits := func(name string) bool { return find(multi, name) != nil && !s.set.disables(name) }
	for _, p := range own {
		switch {
		case !implemented(p.Name):
		case inherits(p.Name):
			overrides = append(overrides, p)
		default:
			others = append(others, p)
		}
	}
	for _, p := range multi {
		if implemented(p.Name) && inherits(p.Name) && find(own, p.Name) == nil {
			inherited = append(inherited, p)
		}
	}
	return slices.Concat(overrides, inherited, others)
}
