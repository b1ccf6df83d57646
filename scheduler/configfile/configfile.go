package configfile

import (
	"fmt"
	"maps"
	"time"

	"go.yaml.in/yaml/v3"

	"monoplane.dev/client"
	"monoplane.dev/scheduler/framework"
)

// Config is a configuration without faults.
type Config struct {
	// InitialBackoff and MaxBackoff are those of the queue.
	InitialBackoff, MaxBackoff time.Duration

	report   *report
	doc      document
	registry Registry
	external Registry
}

// Parse reads a configuration. file is its name in faults; plugins are those that it may name besides the scheduler's
// own. The error is of type Faults, except when plugins is faulty itself.
func Parse(file string, text []byte, plugins Registry) (*Config, error) {
	registry := inTree()
	for name, f := range plugins {
		if _, taken := registry[name]; taken || f == nil || name == "" || name == all {
			return nil, fmt.Errorf("scheduler plugin %q: the name is taken or not one, or there is no factory", name)
		}
	}
	maps.Copy(registry, plugins)
	c := &Config{report: newReport(file, nil), registry: registry, external: plugins}
	if c.report.Document(text, kind, &c.doc) {
		c.check()
		c.build(client.New(nil))
	}
	if err := c.report.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Profiles makes the profiles. Their plugins use the client.
func (c *Config) Profiles(cl *client.Client) ([]*framework.Profile, error) {
	again := *c
	again.report = newReport(c.report.File, c.report.Root)
	list := again.build(cl)
	return list, again.report.Err()
}

// maxSeconds bounds back-offs: a day.
const maxSeconds = 24 * 60 * 60

// check checks everything but the profiles' plugins, and fills in the defaults.
func (c *Config) check() {
	r, d := c.report, &c.doc
	if d.APIVersion != apiVersion {
		r.Add("apiVersion", "is %q, expected %s", d.APIVersion, apiVersion)
	}
	if d.Kind != kind {
		r.Add("kind", "is %q, expected %s", d.Kind, kind)
	}
	if d.Parallelism != nil && *d.Parallelism < 1 {
		r.Add("parallelism", "is %d, expected 1 or more", *d.Parallelism)
	}
	r.inert(d)
	r.percentage("percentageOfNodesToScore", d.PercentageOfNodesToScore)
	c.InitialBackoff = r.backoff("podInitialBackoffSeconds", d.PodInitialBackoffSeconds, 1)
	c.MaxBackoff = r.backoff("podMaxBackoffSeconds", d.PodMaxBackoffSeconds, 10)
	if c.MaxBackoff < c.InitialBackoff {
		r.Add("podMaxBackoffSeconds", "is %v, expected no less than podInitialBackoffSeconds, %v", c.MaxBackoff,
			c.InitialBackoff)
	}
	if len(d.Profiles) == 0 {
		d.Profiles = make([]profileShape, 1)
	}
	names := map[string]int{}
	for i := range d.Profiles {
		p := &d.Profiles[i]
		path := fmt.Sprintf("profiles[%d]", i)
		r.percentage(path+".percentageOfNodesToScore", p.PercentageOfNodesToScore)
		switch {
		case p.SchedulerName == nil && len(d.Profiles) > 1:
			r.Add(path+".schedulerName", "is missing; each of several profiles needs one")
			continue
		case p.SchedulerName == nil:
			continue
		case *p.SchedulerName == "":
			r.Add(path+".schedulerName", "is empty, expected a name")
			continue
		}
		if first, twice := names[*p.SchedulerName]; twice {
			r.Add(path+".schedulerName", "%q is the name of profiles[%d] already", *p.SchedulerName, first)
			continue
		}
		names[*p.SchedulerName] = i
	}
}

func (r *report) percentage(path string, p *int32) {
	if p != nil && (*p < 0 || *p > 100) {
		r.Add(path, "is %d, expected 0 (adaptive) to 100", *p)
	}
}

func (r *report) backoff(path string, seconds *int64, otherwise int64) time.Duration {
	if seconds == nil {
		seconds = &otherwise
	}
	if *seconds < 1 || *seconds > maxSeconds {
		r.Add(path, "is %d, expected 1 to %d", *seconds, maxSeconds)
		return time.Duration(otherwise) * time.Second
	}
	return time.Duration(*seconds) * time.Second
}

// build makes the profiles and reports what is wrong with their plugins.
func (c *Config) build(cl *client.Client) []*framework.Profile {
	var list []*framework.Profile
	var first *builder
	for i := range c.doc.Profiles {
		b := c.builder(i, cl)
		list = append(list, b.build())
		switch {
		case first == nil:
			first = b
		case b.sorter != "" && first.sorter != "" && (b.sorter != first.sorter || !same(b.sorterArgs, first.sorterArgs)):
			// There is one queue.
			b.Add(b.path+".plugins.queueSort", "is %s, expected %s with the same args: all profiles share one queue", b.sorter,
				first.sorter)
		}
	}
	return list
}

func (c *Config) builder(i int, cl *client.Client) *builder {
	return &builder{
		report: c.report, doc: &c.doc, shape: &c.doc.Profiles[i], path: fmt.Sprintf("profiles[%d]", i),
		registry: c.registry, external: c.external, client: cl,
	}
}

// same compares two values.
func same(a, b *yaml.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !same(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}
