// Package volumezone keeps pods in the zone and region that the labels of their bound volumes name (spec: SCHED-4).
// Volumes of today have a node affinity instead; see volumebinding.
package volumezone

import (
	"fmt"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "VolumeZone"

// The labels, the old ones with the name that they have today.
var topologyLabels = [...]struct{ key, today string }{
	{"failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"},
	{"failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"},
	{"topology.kubernetes.io/zone", "topology.kubernetes.io/zone"},
	{"topology.kubernetes.io/region", "topology.kubernetes.io/region"},
}

// separator stands between the zones of a volume that is in several.
const separator = "__"

// Plugin implements PreFilter and Filter.
type Plugin struct{ skip, refused, nameless *framework.Status }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{
		skip:     framework.NewStatus(framework.Skip, Name),
		refused:  unresolvable("node(s) had no available volume zone"),
		nameless: unresolvable("PersistentVolumeClaim had no pv name and storageClass name"),
	}
}

func unresolvable(reason string) *framework.Status {
	return framework.NewStatus(framework.Unresolvable, Name, reason)
}

var (
	_ framework.PreFilter = (*Plugin)(nil)
	_ framework.Filter    = (*Plugin)(nil)
	_ framework.Enqueue   = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

type stateKey struct{}

// place is what a label of a volume asks of nodes.
type place struct {
	key, today string
	values     []string
}

// PreFilter reads the labels of the pod's volumes, and skips pods whose volumes have none.
func (p *Plugin) PreFilter(state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	if len(pod.Claims) == 0 {
		return nil, p.skip
	}
	all := snapshot.Volumes()
	var places []place
	for _, name := range pod.Claims {
		c := all.Claim(cache.Key{Namespace: pod.Key.Namespace, Name: name})
		if c == nil {
			return nil, unresolvable(fmt.Sprintf("persistentvolumeclaim %q not found", name))
		}
		volume := c.Claim.GetSpec().GetVolumeName()
		if volume == "" {
			if s := p.unbound(all, c); s != nil {
				return nil, s
			}
			continue
		}
		v := all.Volume(volume)
		if v == nil {
			return nil, unresolvable(fmt.Sprintf("persistentvolume %q not found", volume))
		}
		places = append(places, placesOf(v.Volume)...)
	}
	if len(places) == 0 {
		return nil, p.skip
	}
	state.Write(stateKey{}, places)
	return nil, nil
}

// unbound refuses a pod whose claim should be bound by now.
func (p *Plugin) unbound(all *framework.Volumes, c *framework.ClaimInfo) *framework.Status {
	class := all.Class(c.Wish.Class)
	switch {
	case c.Wish.Class == "":
		return p.nameless
	case class == nil:
		return unresolvable(fmt.Sprintf("storageclass.storage.k8s.io %q not found", c.Wish.Class))
	case !storage.Waits(class):
		return unresolvable("PersistentVolume had no name")
	}
	return nil
}

func placesOf(v *corev1.PersistentVolume) []place {
	var places []place
	for _, l := range topologyLabels {
		text, ok := v.GetMetadata().GetLabels()[l.key]
		if !ok {
			continue
		}
		values := strings.Split(text, separator)
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if !slices.Contains(values, "") { // otherwise nobody can read it
			places = append(places, place{l.key, l.today, values})
		}
	}
	return places
}

// Filter refuses nodes of another zone or region. A node without any such label fits: the cluster has no zones.
func (p *Plugin) Filter(
	state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo,
) *framework.Status {
	labels := node.Node.GetMetadata().GetLabels()
	if !zoned(labels) {
		return nil
	}
	places, _ := state.Read(stateKey{}).([]place)
	for i := range places {
		l := &places[i]
		value, ok := labels[l.key]
		if !ok {
			value, ok = labels[l.today]
		}
		if !ok || !slices.Contains(l.values, value) {
			return p.refused
		}
	}
	return nil
}

func zoned(labels map[string]string) bool {
	for i := range topologyLabels {
		if _, ok := labels[topologyLabels[i].key]; ok {
			return true
		}
	}
	return false
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event {
	return framework.NodeAdded | framework.NodeLabels | framework.ClaimChanged | framework.VolumeChanged |
		framework.ClassChanged
}

// Helps says whether a change can help.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	switch c.Event {
	case framework.ClaimChanged:
		return cache.KeyOf(c.Claim).Namespace == pod.Key.Namespace && slices.Contains(pod.Claims, cache.KeyOf(c.Claim).Name)
	case framework.VolumeChanged:
		return c.OldVolume == nil || !slices.EqualFunc(placesOf(c.OldVolume), placesOf(c.Volume), func(a, b place) bool {
			return a.key == b.key && slices.Equal(a.values, b.values)
		})
	case framework.ClassChanged:
		return c.OldClass == nil && storage.Waits(c.Class)
	default: // a node came, or has other labels
		return true
	}
}
