package state_test

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/state"
)

// What a decision planned for a pod's volumes counts for the next one, until the watch shows it or the pod is
// forgotten.
// spec: SCHED-3
func TestAssumedVolumes(t *testing.T) {
	class := "c"
	claim := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "claim", Uid: "claim"},
		Spec:     &corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
	volume := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: "v", Uid: "v"}, Spec: &corev1.PersistentVolumeSpec{StorageClassName: class},
		Status: &corev1.PersistentVolumeStatus{Phase: "Available"},
	}
	key := cache.KeyOf(claim)
	pod := framework.NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p", Uid: "p"}})
	for _, tc := range []struct {
		name string
		then func(s *state.State)
		// want is whether the volume is still taken, and where the other volume of the claim is to be made.
		taken bool
		node  string
	}{
		{"nothing", func(*state.State) {}, true, "n1"},
		{"forgotten", func(s *state.State) { s.Forget(pod) }, false, ""},
		{"gone", func(s *state.State) { s.RemovePod("p") }, false, ""},
		{"an older state is seen again", func(s *state.State) {
			s.SetVolume("v", framework.NewVolumeInfo(volume, nil))
			s.SetClaim(key, framework.NewClaimInfo(claim))
		}, true, "n1"},
		{"seen", func(s *state.State) {
			s.SetVolume("v", framework.NewVolumeInfo(storage.BoundVolume(volume, claim), nil))
			placed := object.Clone(claim)
			storage.Annotate(placed, storage.SelectedNode, "n1")
			s.SetClaim(key, framework.NewClaimInfo(placed))
		}, true, "n1"},
		{"seen, and taken back", func(s *state.State) {
			s.SetVolume("v", framework.NewVolumeInfo(storage.BoundVolume(volume, claim), nil))
			s.SetVolume("v", framework.NewVolumeInfo(volume, nil))
			placed := object.Clone(claim)
			storage.Annotate(placed, storage.SelectedNode, "n1")
			s.SetClaim(key, framework.NewClaimInfo(placed))
			s.SetClaim(key, framework.NewClaimInfo(claim))
		}, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, snapshot := state.New(), framework.NewSnapshot()
			s.SetVolume("v", framework.NewVolumeInfo(volume, nil))
			s.SetClaim(key, framework.NewClaimInfo(claim))
			s.Update(snapshot)
			if len(snapshot.Volumes().Anywhere(class)) != 1 {
				t.Fatal("the volume is not free")
			}
			s.Assume(pod, "n1")
			c := snapshot.Volumes().Claim(key)
			s.AssumeVolumes("p", &framework.VolumePlan{
				Node: "n1", Bind: []framework.VolumeChoice{{Volume: snapshot.Volumes().Volume("v"), Claim: c}},
				Provision: []*framework.ClaimInfo{c},
			})
			tc.then(s)
			s.Update(snapshot)
			if taken := len(snapshot.Volumes().Anywhere(class)) == 0; taken != tc.taken ||
				len(snapshot.Volumes().Meant(key)) == 1 != tc.taken {
				t.Errorf("taken: %v", taken)
			}
			if got := snapshot.Volumes().Claim(key).SelectedNode; got != tc.node {
				t.Errorf("selected node %q", got)
			}
		})
	}
}
