package naive

import (
	"fmt"
	"slices"
	"testing"

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
	"monoplane.dev/scheduler/test/objects"
)

// whole is the snapshot made at once.
func (s *storage) whole() *framework.Snapshot {
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
func (s *storage) grown(d Dice) *framework.Snapshot {
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
		p := framework.NewPodInfo(objects.Pod("assumed", "cpu=1m"))
		p.UID = "assumed"
		st.Assume(p, "n0")
		plan := &framework.VolumePlan{Node: pick(d, "n0", "n1")}
		for _, v := range s.volumes {
			if d.one(3) {
				plan.Bind = append(plan.Bind, framework.VolumeChoice{Volume: volumebinding.Volume(v),
					Claim: framework.NewClaimInfo(c)})
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
		d := NewDice(uint64(seed)) //nolint:gosec // not negative
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
							t.Fatalf("seed %d, snapshot %d: %s says %q of %s, want %q\npod %s", seed, which, tc.plugin.Name(), got,
								node.Metadata.Name, want, pod.AppendJSON(nil))
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
	base := func() *storage {
		d := NewDice(1)
		s := &storage{Cluster: &Cluster{nodes: []*corev1.Node{objects.Node("n1")}}}
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
		change func(s *storage, c *corev1.PersistentVolumeClaim)
		want   string
	}{
		{func(s *storage, _ *corev1.PersistentVolumeClaim) {}, ""},
		{func(s *storage, _ *corev1.PersistentVolumeClaim) { s.claims = nil }, `persistentvolumeclaim "c" not found`},
		{func(_ *storage, c *corev1.PersistentVolumeClaim) {
			c.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		},
			`persistentvolumeclaim "c" is being deleted`},
		{func(_ *storage, c *corev1.PersistentVolumeClaim) {
			c.Status.Phase, c.Spec.VolumeName = "Lost", "v"
		},
			`persistentvolumeclaim "c" bound to non-existent persistentvolume "v"`},
		{func(_ *storage, c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &now },
			"pod has unbound immediate PersistentVolumeClaims"},
		{func(_ *storage, c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &none },
			"pod has unbound immediate PersistentVolumeClaims"},
		{func(_ *storage, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" },
			"pod has unbound immediate PersistentVolumeClaims"},
		{func(s *storage, _ *corev1.PersistentVolumeClaim) { s.classes = nil },
			"pod has unbound immediate PersistentVolumeClaims"},
		{func(_ *storage, c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Metadata.Annotations["pv.kubernetes.io/bind-completed"] = "gone", "yes"
		}, `persistentvolume "gone" not found`},
	} {
		s := base()
		tc.change(s, s.claims[0])
		pod := objects.Pod("p")
		pod.Spec.Volumes = []*corev1.Volume{{VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		e, err := newReferee(t).profile.Explain(framework.NewPodInfo(object.Clone(pod)), s.whole())
		if err != nil {
			t.Fatal(err)
		}
		if got := e.PreFilter.Message(); got != tc.want || e.PreFilter.Code() == framework.Unschedulable {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
