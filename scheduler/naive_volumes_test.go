package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/state"
	"monoplane.dev/scheduler/plugins/volumebinding"
	"monoplane.dev/scheduler/plugins/volumerestrictions"
	"monoplane.dev/scheduler/plugins/volumezone"
)

// naiveStorage is what the volumes of pods depend on, as plain lists, and what is said about volumes in SCHED-4 and ATT-2 once more, without
// a look at the plugins.
type naiveStorage struct {
	*naiveCluster
	claims  []*corev1.PersistentVolumeClaim
	volumes []*corev1.PersistentVolume
	classes []*storagev1.StorageClass
}

func (s *naiveStorage) claimsOf(pod *corev1.Pod) []*corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, v := range pod.Spec.Volumes {
		for _, c := range s.claims {
			if c.Metadata.Namespace == pod.Metadata.Namespace && c.Metadata.Name == v.VolumeSource.GetPersistentVolumeClaim().GetClaimName() {
				list = append(list, c)
			}
		}
	}
	return list
}

func (s *naiveStorage) volumeNamed(name string) *corev1.PersistentVolume {
	for _, v := range s.volumes {
		if v.Metadata.Name == name {
			return v
		}
	}
	return nil
}

// reaches: any term, and in it all requirements.
func (s *naiveStorage) reaches(v *corev1.PersistentVolume, node *corev1.Node) bool {
	if v.Spec.NodeAffinity == nil {
		return true
	}
	for _, t := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
		all := len(t.MatchExpressions) > 0
		for _, e := range t.MatchExpressions {
			value, has := node.Metadata.Labels[e.Key]
			all = all && has && slices.Contains(e.Values, value)
		}
		if all {
			return true
		}
	}
	return false
}

func naiveSize(q *metav1.Quantity) int64 {
	n := resource.MustParse(q.String_)
	return n.Value()
}

func (s *naiveStorage) binding(pod *corev1.Pod, node *corev1.Node) []string {
	var reasons []string
	var open []*corev1.PersistentVolumeClaim
	for _, c := range s.claimsOf(pod) {
		if c.Spec.VolumeName == "" {
			open = append(open, c)
		} else if !s.reaches(s.volumeNamed(c.Spec.VolumeName), node) && len(reasons) == 0 {
			reasons = []string{"node(s) didn't match PersistentVolume's node affinity"}
		}
	}
	slices.SortStableFunc(open, func(a, b *corev1.PersistentVolumeClaim) int {
		return int(naiveSize(a.Spec.Resources.Requests["storage"])>>20 - naiveSize(b.Spec.Resources.Requests["storage"])>>20)
	})
	taken := map[string]bool{}
	for _, c := range open {
		if !s.find(c, node, taken) {
			return append(reasons, "node(s) didn't find available persistent volumes to bind")
		}
	}
	return reasons
}

// find says whether a claim finds the smallest volume that is left, or may have one made.
func (s *naiveStorage) find(c *corev1.PersistentVolumeClaim, node *corev1.Node, taken map[string]bool) bool {
	on, selected := c.Metadata.Annotations["volume.kubernetes.io/selected-node"]
	if selected && on != node.Metadata.Name {
		return false
	}
	var meant, best *corev1.PersistentVolume
	for _, v := range s.volumes {
		size := naiveSize(v.Spec.Capacity["storage"])
		if selected || v.Spec.StorageClassName != *c.Spec.StorageClassName || size < naiveSize(c.Spec.Resources.Requests["storage"]) {
			continue
		}
		if ref := v.Spec.ClaimRef; ref != nil {
			if ref.Namespace == c.Metadata.Namespace && ref.Name == c.Metadata.Name && (ref.Uid == "" || ref.Uid == c.Metadata.Uid) {
				meant = v
			}
			continue
		}
		modes := true
		for _, m := range c.Spec.AccessModes {
			modes = modes && slices.Contains(v.Spec.AccessModes, m)
		}
		labels := c.Spec.Selector == nil || v.Metadata.Labels["disk"] == c.Spec.Selector.MatchLabels["disk"]
		fits := v.Status.Phase == "Available" && modes && labels && !taken[v.Metadata.Name] && s.reaches(v, node)
		if fits && (best == nil || size < naiveSize(best.Spec.Capacity["storage"])) {
			best = v
		}
	}
	if meant != nil {
		best = nil
		if s.reaches(meant, node) {
			return true
		}
	}
	if best != nil {
		taken[best.Metadata.Name] = true
		return true
	}
	for _, class := range s.classes {
		if class.Metadata.Name != *c.Spec.StorageClassName || class.Provisioner == "kubernetes.io/no-provisioner" {
			continue
		}
		in := len(class.AllowedTopologies) == 0
		for _, t := range class.AllowedTopologies {
			e := t.MatchLabelExpressions[0]
			in = in || slices.Contains(e.Values, node.Metadata.Labels[e.Key])
		}
		return in
	}
	return false
}

func (s *naiveStorage) zone(pod *corev1.Pod, node *corev1.Node) []string {
	_, zone := node.Metadata.Labels[zoneKey]
	_, region := node.Metadata.Labels["topology.kubernetes.io/region"]
	if !zone && !region {
		return nil
	}
	for _, c := range s.claimsOf(pod) {
		if c.Spec.VolumeName == "" {
			continue
		}
		for key, want := range s.volumeNamed(c.Spec.VolumeName).Metadata.Labels {
			switch key {
			case "failure-domain.beta.kubernetes.io/zone":
				key = zoneKey
			case zoneKey:
			default:
				continue
			}
			value, has := node.Metadata.Labels[key]
			if !has || want != value && want != "a__b" || want == "a__b" && value != "a" && value != "b" {
				return []string{"node(s) had no available volume zone"}
			}
		}
	}
	return nil
}

func (s *naiveStorage) oncePod(pod *corev1.Pod, _ *corev1.Node) []string {
	for _, c := range s.claimsOf(pod) {
		for _, other := range s.pods {
			if slices.Contains(c.Spec.AccessModes, "ReadWriteOncePod") && slices.Contains(s.claimsOf(other), c) {
				return []string{"node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"}
			}
		}
	}
	return nil
}

// storage makes volumes, claims that are bound to some or wait for a consumer, classes, and has the pods of the cluster use some.
func (d dice) storage() *naiveStorage {
	s := &naiveStorage{naiveCluster: d.cluster()}
	late := "WaitForFirstConsumer"
	for _, name := range []string{"static", "made", "zonal"} {
		c := &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: name}, Provisioner: "example.com/p", VolumeBindingMode: &late}
		switch name {
		case "static":
			c.Provisioner = "kubernetes.io/no-provisioner"
		case "zonal":
			for range 1 + d.IntN(2) {
				c.AllowedTopologies = append(c.AllowedTopologies, &corev1.TopologySelectorTerm{MatchLabelExpressions: []*corev1.TopologySelectorLabelRequirement{
					{Key: pick(d, zoneKey, "rack"), Values: []string{pick(d, "a", "1"), pick(d, "b", "2")}},
				}})
			}
		}
		s.classes = append(s.classes, c)
	}
	for i := range d.IntN(12) {
		s.volumes = append(s.volumes, d.volume(fmt.Sprint("v", i)))
	}
	for i := range 1 + d.IntN(6) {
		c := d.claim(fmt.Sprint("c", i), pick(d, "ns", "ns", "other"))
		s.claims = append(s.claims, c)
		if len(s.volumes) == 0 {
			continue
		}
		v := s.volumes[d.IntN(len(s.volumes))]
		ref := &corev1.ObjectReference{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, Uid: c.Metadata.Uid}
		switch roll := d.IntN(4); {
		case v.Spec.ClaimRef != nil:
		case roll < 2:
			v.Spec.ClaimRef, v.Status.Phase = ref, "Bound"
			c.Spec.VolumeName, c.Status.Phase = v.Metadata.Name, "Bound"
			c.Metadata.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
		case roll == 2:
			ref.Uid = pick(d, "", ref.Uid, "another")
			v.Spec.ClaimRef = ref
		}
	}
	for _, p := range s.pods {
		if d.one(4) {
			s.use(d, p)
		}
	}
	return s
}

// use has a pod use claims of its namespace.
func (s *naiveStorage) use(d dice, p *corev1.Pod) {
	for i, c := range s.claims {
		if c.Metadata.Namespace == p.Metadata.Namespace && d.one(2) {
			p.Spec.Volumes = append(p.Spec.Volumes, &corev1.Volume{Name: fmt.Sprint("claim", i), VolumeSource: &corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Metadata.Name},
			}})
		}
	}
}

func (d dice) volume(name string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name, Uid: name, Labels: map[string]string{"disk": pick(d, "ssd", "hdd")}},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: quantities("storage=" + pick(d, "1Gi", "2Gi", "5Gi")), StorageClassName: pick(d, "static", "static", "made", "zonal"),
			AccessModes: pick(d, []string{"ReadWriteOnce"}, []string{"ReadWriteOnce", "ReadWriteOncePod"}),
		},
		Status: &corev1.PersistentVolumeStatus{Phase: pick(d, "Available", "Available", "Available", "Released", "")},
	}
	if d.one(4) {
		v.Metadata.Labels[pick(d, zoneKey, "failure-domain.beta.kubernetes.io/zone")] = pick(d, "a", "b", "a__b")
	}
	if d.one(2) {
		r := &corev1.NodeSelector{}
		for range 1 + d.IntN(2) {
			t := &corev1.NodeSelectorTerm{}
			for range 1 + d.IntN(2) {
				t.MatchExpressions = append(t.MatchExpressions, pick(d,
					&corev1.NodeSelectorRequirement{Key: hostKey, Operator: "In", Values: []string{pick(d, "n0", "n1", "n2"), pick(d, "n1", "n3", "shared")}},
					&corev1.NodeSelectorRequirement{Key: zoneKey, Operator: "In", Values: []string{pick(d, "a", "b")}},
				))
			}
			r.NodeSelectorTerms = append(r.NodeSelectorTerms, t)
		}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: r}
	}
	return v
}

func (d dice) claim(name, namespace string) *corev1.PersistentVolumeClaim {
	class := pick(d, "static", "static", "made", "zonal")
	c := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name, Uid: name, Annotations: map[string]string{}},
		Spec: &corev1.PersistentVolumeClaimSpec{
			Resources:        &corev1.VolumeResourceRequirements{Requests: quantities("storage=" + pick(d, "1Gi", "1100Mi", "2Gi"))},
			StorageClassName: &class, AccessModes: []string{pick(d, "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")},
		},
		Status: &corev1.PersistentVolumeClaimStatus{Phase: "Pending"},
	}
	if d.one(5) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": pick(d, "ssd", "hdd")}}
	}
	if d.one(8) && class != "static" {
		c.Metadata.Annotations["volume.kubernetes.io/selected-node"] = pick(d, "n0", "n1")
	}
	return c
}

// whole is the snapshot made at once.
func (s *naiveStorage) whole() *framework.Snapshot {
	all := s.snapshot()
	for _, c := range s.classes {
		all.SetClass(c.Metadata.Name, c)
	}
	for _, c := range s.claims {
		all.SetClaim(cache.KeyOf(c), framework.NewClaimInfo(c))
	}
	for _, v := range s.volumes {
		all.SetVolume(v.Metadata.Name, volumebinding.Volume(v))
	}
	return all
}

// grown is the same by way of changes: other states first, assumptions that are forgotten or that the watch confirms.
func (s *naiveStorage) grown(d dice) *framework.Snapshot {
	st, all := state.New(), framework.NewSnapshot()
	update := func() {
		if d.one(3) {
			st.Update(all)
		}
	}
	for _, n := range s.nodes {
		st.SetNode(n)
	}
	for _, p := range s.pods {
		st.SetPod(framework.NewPodInfo(p))
	}
	for _, c := range s.classes {
		st.SetClass(c.Metadata.Name, c)
	}
	for _, v := range s.volumes {
		if d.one(2) {
			st.SetVolume(v.Metadata.Name, volumebinding.Volume(d.volume(v.Metadata.Name)))
			update()
		}
		if d.one(6) {
			st.SetVolume(v.Metadata.Name, nil)
		}
		st.SetVolume(v.Metadata.Name, volumebinding.Volume(v))
		update()
	}
	for _, c := range s.claims {
		if d.one(2) {
			st.SetClaim(cache.KeyOf(c), framework.NewClaimInfo(d.claim(c.Metadata.Name, c.Metadata.Namespace)))
			update()
		}
		st.SetClaim(cache.KeyOf(c), framework.NewClaimInfo(c))
		update()
		p := framework.NewPodInfo(newPod("assumed", "cpu=1m"))
		p.UID = "assumed"
		st.Assume(p, "n0")
		plan := &framework.VolumePlan{Node: pick(d, "n0", "n1")}
		for _, v := range s.volumes {
			if d.one(3) {
				plan.Bind = append(plan.Bind, framework.VolumeChoice{Volume: volumebinding.Volume(v), Claim: framework.NewClaimInfo(c)})
			}
		}
		plan.Provision = append(plan.Provision, framework.NewClaimInfo(c))
		st.AssumeVolumes("assumed", plan)
		update()
		if d.one(2) {
			st.Forget(p)
		} else {
			st.RemovePod(p.UID)
		}
	}
	st.Update(all)
	return all
}

// The plugins for volumes agree with the naive ones on every node, on snapshots made at once and by changes.
// spec: SCHED-4, ATT-2
func TestVolumesAgainstNaive(t *testing.T) {
	const clusters, podsEach = 3000, 4
	binder, err := volumebinding.New(volumebinding.DefaultArgs(), client.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	first, last := 0, clusters
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	refused, fit := map[string]int{}, 0
	for seed := first; seed < last; seed++ {
		d := newDice(uint64(seed)) //nolint:gosec // not negative
		s := d.storage()
		snapshots := []*framework.Snapshot{s.whole(), s.grown(d)}
		for i := range podsEach {
			pod := d.pod(fmt.Sprint("new", i))
			s.use(d, pod)
			for _, tc := range []struct {
				plugin interface {
					framework.PreFilter
					framework.Filter
				}
				naive func(*corev1.Pod, *corev1.Node) []string
			}{{binder, s.binding}, {volumezone.New(), s.zone}, {volumerestrictions.New(), s.oncePod}} {
				for which, all := range snapshots {
					cycle, info := framework.NewCycleState(all), framework.NewPodInfo(pod)
					_, status := tc.plugin.PreFilter(cycle, info, all)
					if status.IsRejected() {
						t.Fatalf("seed %d: %s refuses the pod: %s", seed, tc.plugin.Name(), status.Message())
					}
					for _, node := range s.nodes {
						var got []string
						if status.Code() != framework.Skip {
							got = tc.plugin.Filter(cycle, info, all.Node(node.Metadata.Name)).Reasons()
						}
						want := tc.naive(pod, node)
						if !slices.Equal(got, want) {
							t.Fatalf("seed %d, snapshot %d: %s says %q of %s, want %q\npod %s", seed, which, tc.plugin.Name(), got, node.Metadata.Name, want, pod.AppendJSON(nil))
						}
						if len(want) == 0 {
							fit++
						}
						for _, r := range want {
							refused[r]++
						}
					}
				}
			}
		}
	}
	t.Logf("seeds %d..%d: %d nodes fit, refused: %v", first, last-1, fit, refused)
	if *onlySeed < 0 && (len(refused) != 4 || fit < 100_000) {
		t.Error("the cases are too much alike")
	}
	for r, n := range refused {
		if *onlySeed < 0 && n < 1000 {
			t.Errorf("%q came %d times only", r, n)
		}
	}
}

// What ends a decision before any node is looked at.
// spec: SCHED-4, SCHED-6
func TestVolumesRefusePods(t *testing.T) {
	late, now := "WaitForFirstConsumer", "Immediate"
	base := func() *naiveStorage {
		d := newDice(1)
		s := &naiveStorage{naiveCluster: &naiveCluster{nodes: []*corev1.Node{newNode("n1")}}}
		c := d.claim("c", "ns")
		c.Spec.StorageClassName, c.Spec.Selector, c.Metadata.Annotations = &late, nil, map[string]string{}
		s.claims = []*corev1.PersistentVolumeClaim{c}
		s.classes = []*storagev1.StorageClass{
			{Metadata: &metav1.ObjectMeta{Name: late}, Provisioner: "example.com/p", VolumeBindingMode: &late},
			{Metadata: &metav1.ObjectMeta{Name: now}, Provisioner: "example.com/p", VolumeBindingMode: &now},
		}
		return s
	}
	none := ""
	for _, tc := range []struct {
		change func(s *naiveStorage, c *corev1.PersistentVolumeClaim)
		want   string
	}{
		{func(s *naiveStorage, _ *corev1.PersistentVolumeClaim) {}, ""},
		{func(s *naiveStorage, _ *corev1.PersistentVolumeClaim) { s.claims = nil }, `persistentvolumeclaim "c" not found`},
		{func(_ *naiveStorage, c *corev1.PersistentVolumeClaim) {
			c.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		},
			`persistentvolumeclaim "c" is being deleted`},
		{func(_ *naiveStorage, c *corev1.PersistentVolumeClaim) {
			c.Status.Phase, c.Spec.VolumeName = "Lost", "v"
		},
			`persistentvolumeclaim "c" bound to non-existent persistentvolume "v"`},
		{func(_ *naiveStorage, c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &now }, "pod has unbound immediate PersistentVolumeClaims"},
		{func(_ *naiveStorage, c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &none }, "pod has unbound immediate PersistentVolumeClaims"},
		{func(_ *naiveStorage, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }, "pod has unbound immediate PersistentVolumeClaims"},
		{func(s *naiveStorage, _ *corev1.PersistentVolumeClaim) { s.classes = nil }, "pod has unbound immediate PersistentVolumeClaims"},
		{func(_ *naiveStorage, c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Metadata.Annotations["pv.kubernetes.io/bind-completed"] = "gone", "yes"
		}, `persistentvolume "gone" not found`},
	} {
		s := base()
		tc.change(s, s.claims[0])
		pod := newPod("p")
		pod.Spec.Volumes = []*corev1.Volume{{VolumeSource: &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		e, err := newReferee(t).profile.Explain(framework.NewPodInfo(object.Clone(pod)), s.whole())
		if err != nil {
			t.Fatal(err)
		}
		if got := e.PreFilter.Message(); got != tc.want || e.PreFilter.Code() == framework.Unschedulable {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
