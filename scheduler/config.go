package scheduler

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/client"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/balancedallocation"
	"monoplane.dev/scheduler/plugins/defaultbinder"
	"monoplane.dev/scheduler/plugins/defaultpreemption"
	"monoplane.dev/scheduler/plugins/imagelocality"
	"monoplane.dev/scheduler/plugins/interpodaffinity"
	"monoplane.dev/scheduler/plugins/nodeaffinity"
	"monoplane.dev/scheduler/plugins/nodename"
	"monoplane.dev/scheduler/plugins/nodeports"
	"monoplane.dev/scheduler/plugins/noderesources"
	"monoplane.dev/scheduler/plugins/nodeunschedulable"
	"monoplane.dev/scheduler/plugins/nodevolumelimits"
	"monoplane.dev/scheduler/plugins/podtopologyspread"
	"monoplane.dev/scheduler/plugins/prioritysort"
	"monoplane.dev/scheduler/plugins/schedulinggates"
	"monoplane.dev/scheduler/plugins/tainttoleration"
	"monoplane.dev/scheduler/plugins/volumebinding"
	"monoplane.dev/scheduler/plugins/volumerestrictions"
	"monoplane.dev/scheduler/plugins/volumezone"
)

// DefaultName is the scheduler name of pods that choose none.
const DefaultName = "default-scheduler"

// Config describes a scheduler.
type Config struct {
	// Client acts as the identity system:scheduler.
	Client *client.Client
	// Profiles decide, each for the pods that name it in spec.schedulerName; none means DefaultProfile(Client). Their
	// names differ. All pods are in one queue, which is sorted by the first one's QueueSort: all should have the same.
	Profiles []*framework.Profile
	// Binders is how many bindings are under way at once; 64 by default. The store commits many together.
	Binders int
	// InitialBackoff, MaxBackoff and MaxWait are those of the queue: 1 s, 10 s, 5 minutes.
	InitialBackoff, MaxBackoff, MaxWait time.Duration
	// BindTimeout bounds one binding; 30 s by default.
	BindTimeout time.Duration
	// Seed makes random choices between equal nodes repeatable; 0 picks one.
	Seed uint64
	// Instance names this scheduler in events; by default the profile's name, which is the controller's there, does.
	Instance string
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

func (c Config) complete() (Config, error) {
	if c.Client == nil {
		return c, errors.New("scheduler: no client")
	}
	if len(c.Profiles) == 0 {
		p, err := DefaultProfile(c.Client)
		if err != nil {
			return c, err
		}
		c.Profiles = []*framework.Profile{p}
	}
	if c.Binders <= 0 {
		c.Binders = 64
	}
	if c.BindTimeout <= 0 {
		c.BindTimeout = 30 * time.Second
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// DefaultProfile returns the profile of pods that choose no scheduler.
func DefaultProfile(c *client.Client) (*framework.Profile, error) {
	return framework.NewProfile(DefaultName, 0, DefaultPlugins(c)...)
}

// DefaultPlugins returns the plugins of the default profile with their weights. The order of the filters is the order
// in which they refuse: what nothing but the node's owner can change comes first.
func DefaultPlugins(c *client.Client) []framework.Enabled {
	return []framework.Enabled{
		{Plugin: prioritysort.Plugin{}},
		{Plugin: schedulinggates.New()},
		{Plugin: nodeunschedulable.New()},
		{Plugin: nodename.New()},
		{Plugin: tainttoleration.New(), Weight: 3},
		{Plugin: must(nodeaffinity.New(nodeaffinity.Args{})), Weight: 2},
		{Plugin: nodeports.New()},
		{Plugin: must(noderesources.New(noderesources.FitArgs{})), Weight: 1},
		{Plugin: volumerestrictions.New()},
		{Plugin: nodevolumelimits.New()},
		{Plugin: must(volumebinding.New(volumebinding.DefaultArgs(), c))},
		{Plugin: volumezone.New()},
		{Plugin: podtopologyspread.New(), Weight: 2},
		{Plugin: must(interpodaffinity.New(interpodaffinity.Args{})), Weight: 2},
		{Plugin: must(balancedallocation.New(balancedallocation.Args{})), Weight: 1},
		{Plugin: imagelocality.New(), Weight: 1},
		{Plugin: must(defaultpreemption.New(defaultpreemption.DefaultArgs()))},
		{Plugin: defaultbinder.New(c.Pods)},
	}
}

// must is for plugins with their default arguments, which they never refuse.
func must[P framework.Plugin](p P, err error) framework.Plugin {
	if err != nil {
		panic(err)
	}
	return p
}
