package configfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/defaultpreemption"
)

// builder makes one profile of a document and reports what is wrong with it.
type builder struct {
	*report
	doc      *document
	shape    *profileShape
	path     string
	registry Registry
	client   *client.Client

	// external are the plugins of the registry that are not the scheduler's own.
	external Registry

	plugins map[string]framework.Plugin
	enabled []framework.Enabled
	// sorter is the plugin that orders the queue, with its arguments.
	sorter     string
	sorterArgs *yaml.Node
}

// name returns the scheduler name of the profile.
func (b *builder) name() string {
	if b.shape.SchedulerName == nil {
		return scheduler.DefaultName
	}
	return *b.shape.SchedulerName
}

// build returns the profile. It is of no use when anything was reported.
func (b *builder) build() *framework.Profile {
	before := len(b.Faults)
	b.checkSets()
	pluginsPath := b.path + ".plugins"
	multi := everywhere(defaults(), &b.shape.Plugins.MultiPoint, pluginsPath+".multiPoint")
	b.makePlugins(multi)
	for _, s := range b.shape.Plugins.points() {
		list := b.atPoint(multi, s)
		for _, p := range list {
			b.enabled = append(b.enabled, framework.Enabled{Plugin: b.plugins[p.Name], Weight: int64(p.Weight),
				Points: s.point})
		}
		if s.point == framework.AtQueueSort && len(list) > 0 {
			b.sorter = list[0].Name
			_, b.sorterArgs = b.args(b.sorter)
		}
	}
	if len(b.Faults) > before {
		return nil // what the framework would say could be a consequence
	}
	percentage := b.shape.PercentageOfNodesToScore
	if percentage == nil {
		percentage = b.doc.PercentageOfNodesToScore
	}
	if percentage == nil || *percentage < 0 || *percentage > 100 {
		percentage = new(int32) // what is out of range has been reported
	}
	p, err := framework.NewProfile(b.name(), int(*percentage), b.enabled...)
	if err != nil {
		for _, e := range leaves(err) {
			b.Add(pluginsPath, "%s", strings.TrimPrefix(e.Error(), "profile "+b.name()+": "))
		}
	}
	return p
}

// atPoint returns the plugins of one point.
func (b *builder) atPoint(multi []place, s pointSet) []place {
	list := here(multi, s, b.path+".plugins."+s.name, func(name string) bool {
		p := b.plugins[name]
		return p != nil && framework.Implemented(p)&s.point != 0
	})
	if !b.doc.DisablePreemption || s.point != framework.AtPostFilter {
		return list
	}
	return slices.DeleteFunc(list, func(p place) bool {
		if p.Name == defaultpreemption.Name && p.path != "" {
			b.Add(p.path, "%s is enabled although disablePreemption is true", p.Name)
		}
		return p.Name == defaultpreemption.Name
	})
}

// checkSets checks names and weights.
func (b *builder) checkSets() {
	path := b.path + ".plugins."
	plugins := &b.shape.Plugins
	b.checkSet(path+"multiPoint", &plugins.MultiPoint, true)
	for _, s := range plugins.points() {
		b.checkSet(path+s.name, s.set, s.point == framework.AtScore)
	}
	for name, s := range map[string]*pluginSet{
		"placementGenerate": &plugins.PlacementGenerate, "placementScore": &plugins.PlacementScore,
	} {
		if len(s.Enabled) > 0 || len(s.Disabled) > 0 {
			b.Add(path+name, "has no effect here: groups of pods are not scheduled together")
		}
	}
}

func (b *builder) checkSet(path string, s *pluginSet, weighs bool) {
	lines := map[string]string{}
	for _, p := range s.placed(path) {
		if first, again := lines[p.Name]; again {
			b.Add(p.path, "plugin %s is enabled twice, first in %s", p.Name, first)
		}
		lines[p.Name] = p.path
		b.known(p.path, p.Name)
		switch {
		case p.Weight < 0:
			b.Add(p.path+".weight", "is %d, expected 1 or more", p.Weight)
		case p.Weight > 0 && !weighs:
			b.Add(p.path+".weight", "has no effect here: weights are for score and multiPoint")
		}
	}
	for i, e := range s.Disabled {
		at := fmt.Sprintf("%s.disabled[%d]", path, i)
		if e.Name != all {
			b.known(at, e.Name)
		}
		if e.Weight != 0 {
			b.Add(at+".weight", "has no effect here: the plugin is disabled")
		}
	}
}

// known reports a plugin that does not exist.
func (b *builder) known(path, name string) {
	if _, ok := b.registry[name]; !ok {
		b.Add(path+".name", "unknown plugin %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(b.registry)),
			", "))
	}
}

// args returns where the arguments of a plugin are, nil when there are none.
func (b *builder) args(plugin string) (path string, n *yaml.Node) {
	for i := range b.shape.PluginConfig {
		if c := &b.shape.PluginConfig[i]; c.Name == plugin {
			path = fmt.Sprintf("%s.pluginConfig[%d]", b.path, i)
			if c.Args.Kind != 0 {
				n = &c.Args
			}
			return path, n
		}
	}
	return "", nil
}

// makePlugins makes each plugin that is enabled or configured once, and checks that it is enabled where it can be.
func (b *builder) makePlugins(multi []place) {
	b.plugins = map[string]framework.Plugin{}
	configured := map[string]bool{}
	for i, c := range b.shape.PluginConfig {
		at := fmt.Sprintf("%s.pluginConfig[%d]", b.path, i)
		if configured[c.Name] {
			b.Add(at+".name", "plugin %s is configured twice", c.Name)
			continue
		}
		configured[c.Name] = true
		b.known(at, c.Name)
		b.makePlugin(c.Name, at)
	}
	for _, p := range multi {
		b.makePlugin(p.Name, cmp.Or(p.path, b.path))
		pl := b.plugins[p.Name]
		if pl != nil && p.path != "" && p.Weight > 0 && framework.Implemented(pl)&framework.AtScore == 0 {
			b.Add(p.path+".weight", "has no effect here: plugin %s does not score", p.Name)
		}
	}
	for _, s := range b.shape.Plugins.points() {
		for _, p := range s.set.placed(b.path + ".plugins." + s.name) {
			b.makePlugin(p.Name, p.path)
			if pl := b.plugins[p.Name]; pl != nil && framework.Implemented(pl)&s.point == 0 {
				b.Add(p.path+".name", "plugin %s does not implement %s; it implements %s", p.Name, s.point,
					framework.Implemented(pl))
			}
		}
	}
}

func (b *builder) makePlugin(name, at string) {
	f, ok := b.registry[name]
	if _, made := b.plugins[name]; made || !ok {
		return
	}
	path, node := b.args(name)
	_, external := b.external[name]
	args := &Args{plugin: name, report: b.report, node: node, path: path + ".args", ours: !external}
	b.plugins[name] = b.make(f, args, cmp.Or(path, at), b.client)
}
