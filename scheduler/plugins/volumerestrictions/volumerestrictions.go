// Package volumerestrictions keeps a claim with the access mode ReadWriteOncePod to one pod: no node fits while
// another pod uses it (spec: SCHED-4). Preemption may take it from a pod of lower priority. The disks of removed cloud
// drivers are not looked at: no pod can name them.
package volumerestrictions

import (
	"fmt"
	"slices"

	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "VolumeRestrictions"

// Plugin implements PreFilter and Filter.
type Plugin struct{ skip, refused *framework.Status }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{
		skip: framework.NewStatus(framework.Skip, Name),
		refused: framework.NewStatus(framework.Unschedulable, Name,
			"node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"),
	}
}

var (
	_ framework.PreFilter = (*Plugin)(nil)
	_ framework.Filter    = (*Plugin)(nil)
	_ framework.Enqueue   = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

type stateKey struct{}

// exclusive are the claims that the pod wants for itself, by name, and how many pods use each.
type exclusive struct {
	names []string
	users []int
}

// PreFilter counts the users of the claims that one pod may use at a time, and skips pods without such a claim.
func (p *Plugin) PreFilter(state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	var e exclusive
	for _, name := range pod.Claims {
		k := cache.Key{Namespace: pod.Key.Namespace, Name: name}
		c := snapshot.Volumes().Claim(k)
		if c == nil {
			return nil, framework.NewStatus(framework.Unresolvable, Name, fmt.Sprintf("persistentvolumeclaim %q not found",
				name))
		}
		if c.OncePod {
			e.names = append(e.names, name)
			e.users = append(e.users, snapshot.Volumes().Users(k))
		}
	}
	if len(e.names) == 0 {
		return nil, p.skip
	}
	state.Write(stateKey{}, &e)
	return nil, nil
}

// Filter refuses every node while another pod uses such a claim, wherever that is.
func (p *Plugin) Filter(state *framework.CycleState, pod *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	e, _ := state.Read(stateKey{}).(*exclusive)
	for i, name := range e.names {
		if e.users[i]+more(state.WhatIf(), pod.Key.Namespace, name) > 0 {
			return p.refused
		}
	}
	return nil
}

// more is how many more pods would use a claim than are counted; fewer if negative.
func more(w *framework.WhatIf, namespace, claim string) int {
	n := 0
	if w == nil {
		return n
	}
	w.Each(func(p *framework.PodInfo, by int64) {
		if p.Key.Namespace == namespace && slices.Contains(p.Claims, claim) {
			n += int(by)
		}
	})
	return n
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event {
	return framework.NodeAdded | framework.NodeGone | framework.PodGone | framework.ClaimChanged
}

// Helps says whether a change can help: a pod that used one of the claims went, or one of the claims came.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	switch c.Event {
	case framework.PodGone:
		return c.OldPod.GetMetadata().GetNamespace() == pod.Key.Namespace &&
			slices.ContainsFunc(storage.ClaimNames(c.OldPod), func(name string) bool {
				return slices.Contains(pod.Claims, name)
			})
	case framework.ClaimChanged:
		return c.OldClaim == nil && cache.KeyOf(c.Claim).Namespace == pod.Key.Namespace &&
			slices.Contains(pod.Claims, cache.KeyOf(c.Claim).Name)
	default: // a node came, or one whose pods counted as users went
		return true
	}
}
