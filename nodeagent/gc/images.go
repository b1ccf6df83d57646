// Package gc decides what a node can do without: images that nobody uses while their disk fills up, and logs of pods
// that are gone. It has no clock and does nothing itself.
//
// An image is in use while any container is made of it, or mounts it as a volume, which is known of the agent's own
// containers. Pinned images, such as that of the sandboxes, always are. What has been here, or in use, less than a
// minimum age ago stays: a pod may be about to start. What was used longest ago goes first. In a runtime that others
// use too, an image goes only if it was seen in use by the agent's own containers: the rest is not the agent's to
// remove. Where only the images are shared, as by the clusters of a user, the store knows what others use, and refuses
// to remove it.
package gc

import (
	"cmp"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
)

// Policy says when images go. Shares are in percent of the file system.
type Policy struct {
	// High is the share in use from which images are removed, 85 by default, 100 for never; Low the share that is then
	// aimed at, 80 by default.
	High, Low int
	// MinAge is how long an image stays after it came, or was used last; 2 min by default.
	MinAge time.Duration
	// MaxAge is how long an image that nobody uses may stay; 0 for ever.
	MaxAge time.Duration
}

// Complete returns p with defaults in place of what is zero.
func (p Policy) Complete() Policy {
	if p.High == 0 {
		p.High = 85
	}
	if p.Low == 0 {
		p.Low = min(80, p.High)
	}
	if p.MinAge == 0 {
		p.MinAge = 2 * time.Minute
	}
	return p
}

// ToFree returns how many bytes are to be freed of a file system; 0 while it is not full enough.
func (p Policy) ToFree(size, available int64) int64 {
	if size <= 0 || p.High >= 100 || (size-available)*100 < size*int64(p.High) {
		return 0
	}
	return max(0, size*int64(100-p.Low)/100-available)
}

// Images remembers when images came and were in use. The zero value knows none.
type Images struct {
	// Ours tells the agent's own containers in a runtime that others use too; nil where there are no others.
	Ours func(*runtimeapi.Container) bool

	seen map[string]*record // by id
}

type record struct {
	came, used time.Time // used is zero for one that was never
	size       int64
	kept       bool // in use now, or pinned
	ours       bool // was in use by a container of the agent's
}

// Observe takes in which images there are, and which containers.
func (g *Images) Observe(now time.Time, images []*runtimeapi.Image, containers []*runtimeapi.Container) {
	inUse, ours := make(map[string]bool), make(map[string]bool)
	for _, c := range containers {
		mounted := strings.Split(c.GetAnnotations()[criconfig.AnnotationVolumeImages], ",")
		for _, ref := range append(mounted, c.GetImageRef(), c.GetImage().GetImage(), c.GetImageId()) {
			inUse[ref] = true
			ours[ref] = ours[ref] || g.Ours == nil || g.Ours(c)
		}
	}
	before := g.seen
	g.seen = make(map[string]*record, len(images))
	for _, image := range images {
		id := image.GetId()
		r := before[id]
		if r == nil {
			r = &record{came: now}
		}
		r.size = int64(image.GetSize())
		names := slices.Concat([]string{id}, image.GetRepoTags(), image.GetRepoDigests())
		used := slices.ContainsFunc(names, func(name string) bool { return name != "" && inUse[name] })
		r.ours = r.ours || slices.ContainsFunc(names, func(name string) bool { return name != "" && ours[name] })
		if used {
			r.used = now
		}
		r.kept = used || image.GetPinned()
		g.seen[id] = r
	}
}

// Collect has images removed that can go, first those that were used longest ago, until toFree bytes are free; all of
// them when toFree is negative. What is older than the policy's maximum goes in any case. Remove removes one and says
// how much more room there is then: of an image only the size of what came from its registry is known, and the rest of
// it takes more. One that cannot be removed frees nothing, so that others go in its place; it counts as in use now.
// Collect returns how many have gone.
func (g *Images) Collect(now time.Time, p Policy, toFree int64, remove func(id string) (int64, error)) (gone int) {
	type candidate struct {
		id string
		*record
	}
	var all []candidate
	for id, r := range g.seen {
		if !r.kept && (r.ours || g.Ours == nil) && now.Sub(r.latest()) >= p.MinAge {
			all = append(all, candidate{id, r})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.used.Compare(b.used), a.came.Compare(b.came), cmp.Compare(a.id, b.id))
	})
	var freed int64
	for _, c := range all {
		old := p.MaxAge > 0 && now.Sub(c.latest()) >= p.MaxAge
		if toFree >= 0 && freed >= toFree && !old {
			continue
		}
		room, err := remove(c.id)
		if err != nil {
			c.used = now
			continue
		}
		gone++
		freed += max(c.size, room)
	}
	return gone
}

// latest is when the image was needed last, as far as anybody knows.
func (r *record) latest() time.Time {
	if r.used.After(r.came) {
		return r.used
	}
	return r.came
}
