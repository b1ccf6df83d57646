package volumebinding

import (
	"fmt"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
)

type stateKey struct{}

// wanted is what the volumes of a pod ask of nodes.
type wanted struct {
	// bound are the volumes of bound claims, nil for one that does not exist. Those that all nodes can reach are left
	// out.
	bound []*framework.VolumeInfo
	// open are the claims that wait for a consumer, the smallest first.
	open    []open
	volumes *framework.Volumes
	// chosen are the volumes for the open claims on the node that was looked at last; nil for one that is to be made.
	chosen []*framework.VolumeInfo
}

// open is a claim that is to be bound.
type open struct {
	*framework.ClaimInfo
	class *storagev1.StorageClass
	// meant is the volume that is set aside for the claim, nil for none; anywhere are those that it may take, of those
	// that are not tied to hostnames.
	meant    *framework.VolumeInfo
	anywhere []*framework.VolumeInfo
}

// PreFilter refuses pods whose claims are not there, or should be bound by now, and skips pods whose volumes are bound
// and can be reached from everywhere.
func (p *Plugin) PreFilter(state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	if len(pod.Claims) == 0 {
		return nil, p.skip
	}
	all := snapshot.Volumes()
	if why := notMade(pod, all); why != "" {
		return nil, unresolvable(why)
	}
	for _, name := range pod.Claims {
		if why := unusable(all.Claim(cache.Key{Namespace: pod.Key.Namespace, Name: name}), name); why != "" {
			return nil, unresolvable(why)
		}
	}
	w := &wanted{volumes: all}
	for _, name := range pod.Claims {
		c := all.Claim(cache.Key{Namespace: pod.Key.Namespace, Name: name})
		if c.Bound {
			if v := all.Volume(c.Claim.GetSpec().GetVolumeName()); v == nil || v.Reach != nil {
				w.bound = append(w.bound, v)
			}
			continue
		}
		class := all.Class(c.Wish.Class)
		if c.Wish.Class == "" || !storage.Waits(class) || c.Claim.GetSpec().GetVolumeName() != "" {
			return nil, p.immediate
		}
		w.open = append(w.open, open{ClaimInfo: c, class: class})
	}
	if len(w.open) == 0 && len(w.bound) == 0 {
		return nil, p.skip
	}
	slices.SortStableFunc(w.open, func(a, b open) int { return a.Wish.Size.Cmp(b.Wish.Size) })
	for i := range w.open {
		w.open[i].look(all)
	}
	state.Write(stateKey{}, w)
	for _, v := range w.bound {
		if v == nil {
			continue
		}
		if nodes := v.Nodes(snapshot); nodes != nil {
			return &framework.PreFilterResult{First: nodes}, nil
		}
	}
	return nil, nil
}

// notMade says which of the claims that are to be made for the pod is not there yet, or is another's; "" for none.
func notMade(pod *framework.PodInfo, all *framework.Volumes) string {
	for _, v := range pod.Pod.GetSpec().GetVolumes() {
		if v.GetVolumeSource().GetEphemeral() == nil {
			continue
		}
		name := storage.ClaimOf(pod.Pod, v)
		switch c := all.Claim(cache.Key{Namespace: pod.Key.Namespace, Name: name}); {
		case c == nil:
			return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
		case storage.PodOf(c.Claim).GetUid() != pod.UID:
			return fmt.Sprintf("PVC %s/%s was not created for pod %s (pod is not owner)", pod.Key.Namespace, name, pod.Key)
		}
	}
	return ""
}

// unusable says why no pod can use a claim; "" when one can.
func unusable(c *framework.ClaimInfo, name string) string {
	switch {
	case c == nil:
		return fmt.Sprintf("persistentvolumeclaim %q not found", name)
	case c.Claim.GetStatus().GetPhase() == "Lost":
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name,
			c.Claim.GetSpec().GetVolumeName())
	case c.Claim.GetMetadata().GetDeletionTimestamp() != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
	}
	return ""
}

// look finds the volumes that the claim may take on any node.
func (o *open) look(all *framework.Volumes) {
	if o.SelectedNode != "" {
		return // one is being made
	}
	for _, v := range all.Meant(o.Key) {
		if v.Class == o.Wish.Class && storage.Meant(v.Volume, o.Claim) && o.Wish.Holds(v.Volume, v.Size) {
			o.meant = v
			return
		}
	}
	for _, v := range all.Anywhere(o.Wish.Class) {
		if o.mayTake(v) {
			o.anywhere = append(o.anywhere, v)
		}
	}
}

func (o *open) mayTake(v *framework.VolumeInfo) bool {
	return o.Wish.Holds(v.Volume, v.Size) && o.Wish.Free(v.Volume)
}

// Filter refuses nodes on which the pod cannot have all of its volumes.
func (p *Plugin) Filter(
	state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo,
) *framework.Status {
	w, _ := state.Read(stateKey{}).(*wanted)
	bound, none := reachable, 0
	for _, v := range w.bound {
		if v == nil {
			bound = missing
		} else if !v.Reaches(node.Node) {
			bound = unreachable
		}
		if bound != reachable {
			break
		}
	}
	if len(w.open) > 0 && !w.find(node.Node) {
		none = 1
	}
	return p.refused[bound][none]
}

// find looks for volumes for the open claims on a node, or for the right to have them made there.
func (w *wanted) find(node *corev1.Node) bool {
	w.chosen = w.chosen[:0]
	host := node.GetMetadata().GetLabels()[storage.HostnameLabel]
	for i := range w.open {
		o := &w.open[i]
		if o.SelectedNode != "" && o.SelectedNode != node.GetMetadata().GetName() {
			return false
		}
		v := w.volume(o, node, host)
		if v == nil && !mayProvision(o.class, node) {
			return false
		}
		w.chosen = append(w.chosen, v)
	}
	return true
}

// volume returns the smallest volume that the claim can take on the node; nil when there is none.
func (w *wanted) volume(o *open, node *corev1.Node, host string) *framework.VolumeInfo {
	if o.SelectedNode != "" {
		return nil
	}
	if o.meant != nil {
		if o.meant.Reaches(node) && !slices.Contains(w.chosen, o.meant) {
			return o.meant
		}
		return nil
	}
	var best *framework.VolumeInfo
	for _, v := range o.anywhere {
		if v.Reaches(node) && !slices.Contains(w.chosen, v) {
			best = v
			break
		}
	}
	for _, v := range w.volumes.OnHost(o.Wish.Class, host) {
		if best != nil && framework.BySize(best, v) < 0 {
			break
		}
		if o.mayTake(v) && v.Reaches(node) && !slices.Contains(w.chosen, v) {
			return v
		}
	}
	return best
}

// mayProvision says whether a volume of the class can be made for a node.
func mayProvision(class *storagev1.StorageClass, node *corev1.Node) bool {
	if by := class.GetProvisioner(); by == "" || by == storage.NoProvisioner {
		return false
	}
	terms := class.GetAllowedTopologies()
	return len(terms) == 0 || slices.ContainsFunc(terms,
		func(t *corev1.TopologySelectorTerm) bool { return within(t, node) })
}

// within says whether a node is in the topology that a term names; an empty term names none.
func within(t *corev1.TopologySelectorTerm, node *corev1.Node) bool {
	for _, e := range t.GetMatchLabelExpressions() {
		v, ok := node.GetMetadata().GetLabels()[e.GetKey()]
		if !ok || !slices.Contains(e.GetValues(), v) {
			return false
		}
	}
	return len(t.GetMatchLabelExpressions()) > 0
}

// plan returns what was found last, on the named node.
func (w *wanted) plan(node string) *framework.VolumePlan {
	p := &framework.VolumePlan{Node: node}
	for i, v := range w.chosen {
		if v != nil {
			p.Bind = append(p.Bind, framework.VolumeChoice{Volume: v, Claim: w.open[i].ClaimInfo})
		} else {
			p.Provision = append(p.Provision, w.open[i].ClaimInfo)
		}
	}
	return p
}
