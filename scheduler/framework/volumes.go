package framework

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
)

// VolumeInfo is a PersistentVolume with what decisions need of it worked out once. It is immutable.
type VolumeInfo struct {
	Volume      *corev1.PersistentVolume
	Name, Class string
	Size        resource.Quantity
	// Reach says which nodes can reach the volume; nil when all can.
	Reach Reach
	// hosts are the hostnames that all nodes have which can reach the volume; nil when that cannot be told by them.
	hosts []string
}

// Reach is a volume's node affinity.
type Reach interface{ Matches(node *corev1.Node) bool }

// NewVolumeInfo works out what decisions need of v. reach is nil when all nodes can reach it.
func NewVolumeInfo(v *corev1.PersistentVolume, reach Reach) *VolumeInfo {
	return &VolumeInfo{
		Volume: v, Name: v.GetMetadata().GetName(), Class: storage.ClassOfVolume(v), Size: storage.Size(v), Reach: reach,
		hosts: hostsOf(v),
	}
}

// Nodes returns the nodes of a snapshot among which are all that can reach the volume; nil when that cannot be told by
// their hostnames.
func (v *VolumeInfo) Nodes(s *Snapshot) []*NodeInfo {
	if v.hosts == nil {
		return nil
	}
	list := []*NodeInfo{}
	for _, host := range v.hosts {
		list = append(list, s.NodesWith(storage.HostnameLabel, host)...)
	}
	return list
}

// For returns the volume as it is when it is bound to a claim.
func (v *VolumeInfo) For(c *ClaimInfo) *VolumeInfo {
	n := *v
	n.Volume = storage.BoundVolume(v.Volume, c.Claim)
	return &n
}

// Reaches says whether a node can reach the volume (spec: ATT-2). Most volumes of nodes' disks are refused by the
// hostname, which is cheap.
func (v *VolumeInfo) Reaches(node *corev1.Node) bool {
	if v.Reach == nil {
		return true
	}
	if v.hosts != nil && !slices.Contains(v.hosts, node.GetMetadata().GetLabels()[storage.HostnameLabel]) {
		return false
	}
	return v.Reach.Matches(node)
}

// free says whether claims may take the volume that it is not meant for.
func (v *VolumeInfo) free() bool {
	return v.Volume.GetSpec().GetClaimRef() == nil && v.Volume.GetStatus().GetPhase() == "Available" &&
		v.Volume.GetMetadata().GetDeletionTimestamp() == nil
}

// hostsOf returns the hostnames that every alternative of the node affinity requires one of.
func hostsOf(v *corev1.PersistentVolume) []string {
	var hosts []string
next:
	for _, t := range v.GetSpec().GetNodeAffinity().GetRequired().GetNodeSelectorTerms() {
		for _, e := range t.GetMatchExpressions() {
			if e.GetKey() == storage.HostnameLabel && e.GetOperator() == "In" {
				hosts = append(hosts, e.GetValues()...)
				continue next
			}
		}
		return nil
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// ClaimInfo is a PersistentVolumeClaim with what decisions need of it worked out once. It is immutable.
type ClaimInfo struct {
	Claim *corev1.PersistentVolumeClaim
	Key   cache.Key
	Wish  *storage.Wish
	// Bound says whether the binding has been carried out, OncePod whether one pod uses it at a time.
	Bound, OncePod bool
	// SelectedNode is the node that was chosen for its volume; "" for none.
	SelectedNode string
}

// NewClaimInfo works out what decisions need of c.
func NewClaimInfo(c *corev1.PersistentVolumeClaim) *ClaimInfo {
	return &ClaimInfo{
		Claim: c, Key: cache.KeyOf(c), Wish: storage.NewWish(c), Bound: storage.IsBound(c),
		OncePod:      slices.Contains(c.GetSpec().GetAccessModes(), storage.OncePod),
		SelectedNode: c.GetMetadata().GetAnnotations()[storage.SelectedNode],
	}
}

// On returns the claim as it is when its volume is to be made on a node.
func (c *ClaimInfo) On(node string) *ClaimInfo {
	n := *c
	n.SelectedNode = node
	return &n
}

// Volumes are the claims, volumes and storage classes of a snapshot.
type Volumes struct {
	claims  map[cache.Key]*ClaimInfo
	volumes map[string]*VolumeInfo
	classes map[string]*storagev1.StorageClass
	// meant are the volumes that are bound to a claim or set aside for it; the free ones are on the shelf of their class.
	meant   map[cache.Key][]*VolumeInfo
	shelves map[string]*shelf
	// users are how many pods of the nodes use a claim.
	users claimUsers
}

// shelf are free volumes, the smallest first: those that only nodes of a hostname can reach by that hostname.
type shelf struct {
	anywhere []*VolumeInfo
	onHost   map[string][]*VolumeInfo
}

func newVolumes() *Volumes {
	return &Volumes{
		claims: map[cache.Key]*ClaimInfo{}, volumes: map[string]*VolumeInfo{}, classes: map[string]*storagev1.StorageClass{},
		meant: map[cache.Key][]*VolumeInfo{}, shelves: map[string]*shelf{}, users: claimUsers{},
	}
}

// Volumes returns the claims, volumes and classes. They must not be changed.
func (s *Snapshot) Volumes() *Volumes { return s.volumes }

// Claim returns a claim, nil when there is none.
func (v *Volumes) Claim(k cache.Key) *ClaimInfo { return v.claims[k] }

// Volume returns a volume, nil when there is none.
func (v *Volumes) Volume(name string) *VolumeInfo { return v.volumes[name] }

// Class returns a storage class, nil when there is none.
func (v *Volumes) Class(name string) *storagev1.StorageClass { return v.classes[name] }

// Users is how many pods of the nodes use a claim.
func (v *Volumes) Users(k cache.Key) int { return v.users[k] }

// Meant returns the volumes that name a claim, by its key, the smallest first. The slice must not be changed.
func (v *Volumes) Meant(k cache.Key) []*VolumeInfo { return v.meant[k] }

// Anywhere returns the free volumes of a class that are not tied to hostnames, the smallest first. The slice must not
// be changed.
func (v *Volumes) Anywhere(class string) []*VolumeInfo {
	if s := v.shelves[class]; s != nil {
		return s.anywhere
	}
	return nil
}

// OnHost returns the free volumes of a class that are tied to a hostname, the smallest first. The slice must not be
// changed.
func (v *Volumes) OnHost(class, host string) []*VolumeInfo {
	if s := v.shelves[class]; s != nil {
		return s.onHost[host]
	}
	return nil
}

// SetClaim takes a claim; nil when it is gone. It must not be called during a decision.
func (s *Snapshot) SetClaim(k cache.Key, c *ClaimInfo) { put(s.volumes.claims, k, c) }

// SetClass takes a storage class; nil when it is gone. It must not be called during a decision.
func (s *Snapshot) SetClass(name string, c *storagev1.StorageClass) { put(s.volumes.classes, name, c) }

func put[K comparable, T any](m map[K]*T, k K, o *T) {
	if o == nil {
		delete(m, k)
	} else {
		m[k] = o
	}
}

// SetVolume takes a volume; nil when it is gone. It must not be called during a decision.
func (s *Snapshot) SetVolume(name string, n *VolumeInfo) {
	if was := s.volumes.volumes[name]; was != nil {
		s.volumes.file(was, without)
	}
	put(s.volumes.volumes, name, n)
	if n != nil {
		s.volumes.file(n, with)
	}
}

// file puts a volume where it is found, or takes it from there.
func (v *Volumes) file(i *VolumeInfo, change func([]*VolumeInfo, *VolumeInfo) []*VolumeInfo) {
	if ref := i.Volume.GetSpec().GetClaimRef(); ref != nil {
		k := cache.Key{Namespace: ref.GetNamespace(), Name: ref.GetName()}
		if v.meant[k] = change(v.meant[k], i); len(v.meant[k]) == 0 {
			delete(v.meant, k)
		}
		return
	}
	if !i.free() {
		return
	}
	s := v.shelves[i.Class]
	if s == nil {
		s = &shelf{onHost: map[string][]*VolumeInfo{}}
		v.shelves[i.Class] = s
	}
	if i.hosts == nil {
		s.anywhere = change(s.anywhere, i)
	}
	for _, h := range i.hosts {
		if s.onHost[h] = change(s.onHost[h], i); len(s.onHost[h]) == 0 {
			delete(s.onHost, h)
		}
	}
	if len(s.anywhere) == 0 && len(s.onHost) == 0 {
		delete(v.shelves, i.Class)
	}
}

// BySize puts smaller volumes first, of the same size the first by name.
func BySize(a, b *VolumeInfo) int { return cmp.Or(a.Size.Cmp(b.Size), cmp.Compare(a.Name, b.Name)) }

func with(list []*VolumeInfo, v *VolumeInfo) []*VolumeInfo {
	i, _ := slices.BinarySearchFunc(list, v, BySize)
	return slices.Insert(list, i, v)
}

func without(list []*VolumeInfo, v *VolumeInfo) []*VolumeInfo {
	if i, ok := slices.BinarySearchFunc(list, v, BySize); ok {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// claimUsers are how many pods of the nodes use which claim.
type claimUsers map[cache.Key]int

// Added counts the pods of a node.
func (u claimUsers) Added(n *NodeInfo) { u.move(nil, n.pods) }

// Changed counts the pods that came and went.
func (u claimUsers) Changed(_, _ *NodeInfo, went, came []*PodInfo) { u.move(went, came) }

// Removed takes the pods of a node out.
func (u claimUsers) Removed(n *NodeInfo) { u.move(n.pods, nil) }

func (u claimUsers) move(went, came []*PodInfo) {
	for _, p := range came {
		for _, name := range p.Claims {
			u[cache.Key{Namespace: p.Key.Namespace, Name: name}]++
		}
	}
	for _, p := range went {
		for _, name := range p.Claims {
			k := cache.Key{Namespace: p.Key.Namespace, Name: name}
			if u[k]--; u[k] == 0 {
				delete(u, k)
			}
		}
	}
}

// VolumePlan is what must become of volumes before a pod can run on the node that was picked for it.
type VolumePlan struct {
	Node string
	// Bind are the volumes that claims take, Provision the claims that volumes are to be made for, on the node.
	Bind      []VolumeChoice
	Provision []*ClaimInfo
}

// VolumeChoice is a volume that a claim takes.
type VolumeChoice struct {
	Volume *VolumeInfo
	Claim  *ClaimInfo
}

type volumePlanKey struct{}

// PlanVolumes notes what must become of volumes: from Reserve on it counts as done for later decisions, until the
// binding fails.
func (c *CycleState) PlanVolumes(p *VolumePlan) { c.Write(volumePlanKey{}, p) }

// VolumePlan returns what must become of volumes; nil when nothing must.
func (c *CycleState) VolumePlan() *VolumePlan {
	p, _ := c.Read(volumePlanKey{}).(*VolumePlan)
	return p
}
