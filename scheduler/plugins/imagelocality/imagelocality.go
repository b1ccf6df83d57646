// Package imagelocality prefers nodes that have the pod's images already (spec: SCHED-5), the more of their bytes the
// better.
//
// An image counts its size times the share of the nodes that have it: an image that only one node has must not draw
// all its pods there. Sums up to 23 MiB are worth nothing, since they are pulled soon; 1000 MiB for each container are
// worth all.
package imagelocality

import (
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "ImageLocality"

const (
	mib             = 1 << 20
	least           = 23 * mib
	mostByContainer = 1000 * mib
)

// Plugin implements PreFilter, PreScore and Score.
type Plugin struct{ skip *framework.Status }

// New returns the plugin.
func New() *Plugin { return &Plugin{framework.NewStatus(framework.Skip, Name)} }

var (
	_ framework.PreFilter = (*Plugin)(nil)
	_ framework.PreScore  = (*Plugin)(nil)
	_ framework.Score     = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// wantedKey is where PreFilter leaves a wanted for PreScore and Score.
type wantedKey struct{}

// wanted are the pod's images that some node has, one entry for each time the pod wants it.
type wanted struct {
	images []spread
	most   int64
}

type spread struct {
	name string
	// share is that of the nodes which have the image.
	share float64
}

// PreFilter looks up how many nodes have the pod's images; later it would see the nodes that fit only.
func (p *Plugin) PreFilter(
	state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	if !snapshot.HasImages() {
		return nil, p.skip
	}
	w := &wanted{}
	add := func(image string) {
		name := normalized(image)
		if n := snapshot.NodesWithImage(name); n > 0 {
			w.images = append(w.images, spread{name, float64(n) / float64(len(snapshot.Nodes()))})
		}
	}
	spec := pod.Pod.GetSpec()
	for _, list := range [][]*corev1.Container{spec.GetInitContainers(), spec.GetContainers()} {
		for _, c := range list {
			add(c.GetImage())
			w.most += mostByContainer
		}
	}
	for _, v := range spec.GetVolumes() {
		if i := v.GetVolumeSource().GetImage(); i != nil {
			add(i.GetReference()) // not a container: the most does not grow
		}
	}
	if len(w.images) > 0 {
		state.Write(wantedKey{}, w)
	}
	return nil, p.skip
}

// normalized returns the name that nodes report an image by: with a tag.
func normalized(image string) string {
	if strings.LastIndex(image, ":") <= strings.LastIndex(image, "/") {
		return image + ":latest"
	}
	return image
}

// PreScore skips pods whose images no node has.
func (p *Plugin) PreScore(
	state *framework.CycleState, _ *framework.PodInfo, _ []*framework.NodeInfo,
) *framework.Status {
	if state.Read(wantedKey{}) == nil {
		return p.skip
	}
	return nil
}

// Score rates what the node has of the pod's images.
func (*Plugin) Score(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) int64 {
	w, ok := state.Read(wantedKey{}).(*wanted)
	if !ok {
		return 0
	}
	sum := int64(0)
	for i := range w.images {
		if size, ok := node.ImageSize(w.images[i].name); ok {
			sum += int64(float64(size) * w.images[i].share)
		}
	}
	sum = min(max(sum, least), w.most)
	return framework.MaxScore * (sum - least) / (w.most - least)
}
