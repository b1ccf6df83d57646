package configfile

import (
	"errors"
	"fmt"
	"maps"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/balancedallocation"
	"monoplane.dev/scheduler/plugins/defaultpreemption"
	"monoplane.dev/scheduler/plugins/interpodaffinity"
	"monoplane.dev/scheduler/plugins/nodeaffinity"
	"monoplane.dev/scheduler/plugins/noderesources"
	"monoplane.dev/scheduler/plugins/podtopologyspread"
	"monoplane.dev/scheduler/plugins/volumebinding"
)

// defaults returns the plugins that every profile begins with.
func defaults() []pluginEntry {
	var list []pluginEntry
	for _, e := range scheduler.DefaultPlugins(client.New(nil)) {
		list = append(list, pluginEntry{Name: e.Plugin.Name(), Weight: int32(e.Weight)}) //nolint:gosec // weights are small
	}
	return list
}

// inTree returns the factories of the scheduler's own plugins.
func inTree() Registry {
	r := Registry{}
	for i, e := range scheduler.DefaultPlugins(client.New(nil)) {
		r[e.Plugin.Name()] = func(_ *Args, c *client.Client) (framework.Plugin, error) {
			return scheduler.DefaultPlugins(c)[i].Plugin, nil
		}
	}
	maps.Copy(r, Registry{
		nodeaffinity.Name:       newNodeAffinity,
		noderesources.Name:      newFit,
		balancedallocation.Name: newBalancedAllocation,
		podtopologyspread.Name:  newSpread,
		interpodaffinity.Name:   newPodAffinity,
		defaultpreemption.Name:  newPreemption,
		volumebinding.Name:      newVolumeBinding,
	})
	return r
}

func newNodeAffinity(args *Args, _ *client.Client) (framework.Plugin, error) {
	var a struct {
		AddedAffinity *corev1.NodeAffinity `json:"addedAffinity"`
	}
	if err := args.Decode(&a); err != nil {
		return nil, err
	}
	return nodeaffinity.New(nodeaffinity.Args{AddedAffinity: a.AddedAffinity})
}

type resourceShape struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
}

func newFit(args *Args, _ *client.Client) (framework.Plugin, error) {
	var a struct {
		IgnoredResources      []string `json:"ignoredResources"`
		IgnoredResourceGroups []string `json:"ignoredResourceGroups"`
		ScoringStrategy       *struct {
			Type                     string          `json:"type"`
			Resources                []resourceShape `json:"resources"`
			RequestedToCapacityRatio *struct {
				Shape []struct {
					Utilization int64 `json:"utilization"`
					Score       int64 `json:"score"`
				} `json:"shape"`
			} `json:"requestedToCapacityRatio"`
		} `json:"scoringStrategy"`
	}
	if err := args.Decode(&a); err != nil {
		return nil, err
	}
	f := noderesources.FitArgs{IgnoredResources: a.IgnoredResources, IgnoredResourceGroups: a.IgnoredResourceGroups}
	if s := a.ScoringStrategy; s != nil {
		f.ScoringStrategy = &noderesources.ScoringStrategy{Type: noderesources.StrategyType(s.Type)}
		for _, r := range s.Resources {
			if r.Weight == 0 {
				r.Weight = 1 // as Kubernetes takes it
			}
			f.ScoringStrategy.Resources = append(f.ScoringStrategy.Resources, noderesources.WeightedResource(r))
		}
		if s.RequestedToCapacityRatio != nil {
			for _, p := range s.RequestedToCapacityRatio.Shape {
				f.ScoringStrategy.Shape = append(f.ScoringStrategy.Shape, noderesources.Point(p))
			}
		}
	}
	return noderesources.New(f)
}

func newBalancedAllocation(args *Args, _ *client.Client) (framework.Plugin, error) {
	var a struct {
		Resources []resourceShape `json:"resources"`
	}
	if err := args.Decode(&a); err != nil {
		return nil, err
	}
	var errs []error
	var b balancedallocation.Args
	for i, r := range a.Resources {
		if r.Weight != 0 && r.Weight != 1 {
			errs = append(errs, fmt.Errorf("args.resources[%d].weight: is %d, must be 1", i, r.Weight))
		}
		b.Resources = append(b.Resources, r.Name)
	}
	p, err := balancedallocation.New(b)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return p, nil
}

func newSpread(args *Args, _ *client.Client) (framework.Plugin, error) {
	var a podtopologyspread.Args
	if err := args.Decode(&a); err != nil {
		return nil, err
	}
	return podtopologyspread.NewWith(a)
}

func newPodAffinity(args *Args, _ *client.Client) (framework.Plugin, error) {
	var a struct {
		HardPodAffinityWeight              *int32 `json:"hardPodAffinityWeight"`
		IgnorePreferredTermsOfExistingPods bool   `json:"ignorePreferredTermsOfExistingPods"`
	}
	if err := args.Decode(&a); err != nil {
		return nil, err
	}
	return interpodaffinity.New(interpodaffinity.Args(a))
}

func newPreemption(args *Args, _ *client.Client) (framework.Plugin, error) {
	a := defaultpreemption.DefaultArgs()
	if err := args.Decode(&a); err != nil {
		return nil, err
	}
	return defaultpreemption.New(a)
}

func newVolumeBinding(args *Args, c *client.Client) (framework.Plugin, error) {
	a := volumebinding.DefaultArgs()
	if err := args.Decode(&a); err != nil {
		return nil, err
	}
	return volumebinding.New(a, c)
}
