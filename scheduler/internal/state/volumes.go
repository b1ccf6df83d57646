package state

import (
	"maps"
	"slices"
	"strings"

	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
)

// volumes are the claims, volumes and classes, with what decisions have made of them that the watch has not shown yet:
//
//	AssumeVolumes                     the watch shows it (SetVolume, SetClaim), or that it is gone
//	--------------> assumed ---------------------------------------------------------> as it is
//	                   |
//	                   | Forget: the binding failed
//	                   v
//	                as it is
type volumes struct {
	claims  map[cache.Key]*framework.ClaimInfo
	volumes map[string]*framework.VolumeInfo
	// taken are the claims that volumes are taken for, placed the nodes that volumes of claims are to be made on.
	taken  map[string]taken
	placed map[cache.Key]placed

	dirtyClaims  map[cache.Key]struct{}
	dirtyVolumes map[string]struct{}
	classes      map[string]*storagev1.StorageClass // that the snapshot does not have yet
}

type taken struct {
	pod   string // the uid
	claim *framework.ClaimInfo
}

type placed struct{ pod, node string }

func newVolumes() volumes {
	return volumes{
		claims: map[cache.Key]*framework.ClaimInfo{}, volumes: map[string]*framework.VolumeInfo{},
		taken: map[string]taken{}, placed: map[cache.Key]placed{},
		dirtyClaims: map[cache.Key]struct{}{}, dirtyVolumes: map[string]struct{}{},
		classes: map[string]*storagev1.StorageClass{},
	}
}

// SetClass takes a storage class; nil when it is gone.
func (s *State) SetClass(name string, c *storagev1.StorageClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes.classes[name] = c
}

// SetClaim takes a claim; nil when it is gone.
func (s *State) SetClaim(k cache.Key, c *framework.ClaimInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.volumes
	if c == nil {
		delete(v.claims, k)
	} else {
		v.claims[k] = c
	}
	if c == nil || c.Bound || c.SelectedNode != "" {
		delete(v.placed, k)
	}
	v.dirtyClaims[k] = struct{}{}
}

// SetVolume takes a volume; nil when it is gone.
func (s *State) SetVolume(name string, i *framework.VolumeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.volumes
	if i == nil {
		delete(v.volumes, name)
	} else {
		v.volumes[name] = i
	}
	if i == nil || i.Volume.GetSpec().GetClaimRef().GetUid() != "" {
		delete(v.taken, name)
	}
	v.dirtyVolumes[name] = struct{}{}
}

// AssumeVolumes counts what is planned for a pod, by its uid, which is assumed, as done. A claim or volume that is
// assumed for another pod, which uses the same claim, stays assumed for that.
func (s *State) AssumeVolumes(pod string, p *framework.VolumePlan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.volumes
	for _, b := range p.Bind {
		if _, ok := v.taken[b.Volume.Name]; !ok {
			v.taken[b.Volume.Name] = taken{pod, b.Claim}
			v.dirtyVolumes[b.Volume.Name] = struct{}{}
		}
	}
	for _, c := range p.Provision {
		if _, ok := v.placed[c.Key]; !ok {
			v.placed[c.Key] = placed{pod, p.Node}
			v.dirtyClaims[c.Key] = struct{}{}
		}
	}
}

// forget takes back what is assumed for a pod that is forgotten or gone.
func (v *volumes) forget(pod string) {
	for name, t := range v.taken {
		if t.pod == pod {
			delete(v.taken, name)
			v.dirtyVolumes[name] = struct{}{}
		}
	}
	for k, p := range v.placed {
		if p.pod == pod {
			delete(v.placed, k)
			v.dirtyClaims[k] = struct{}{}
		}
	}
}

func (v *volumes) update(snapshot *framework.Snapshot) {
	for _, name := range slices.Sorted(maps.Keys(v.classes)) {
		snapshot.SetClass(name, v.classes[name])
	}
	clear(v.classes)
	for _, k := range slices.SortedFunc(maps.Keys(v.dirtyClaims), byKey) {
		c := v.claims[k]
		if p, ok := v.placed[k]; ok && c != nil {
			c = c.On(p.node)
		}
		snapshot.SetClaim(k, c)
	}
	clear(v.dirtyClaims)
	for _, name := range slices.Sorted(maps.Keys(v.dirtyVolumes)) {
		i := v.volumes[name]
		if t, ok := v.taken[name]; ok && i != nil {
			i = i.For(t.claim)
		}
		snapshot.SetVolume(name, i)
	}
	clear(v.dirtyVolumes)
}

func byKey(a, b cache.Key) int { return strings.Compare(a.String(), b.String()) }
