package volumebinding

import (
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
)

// A pod waits for the claims that are made for it, and takes none that was not. spec: SCHED-4, VOL-1
func TestEphemeralVolumes(t *testing.T) {
	o := using().Pod
	o.Spec.Volumes = []*corev1.Volume{{Name: "scratch", VolumeSource: &corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{},
	}}}
	pod := framework.NewPodInfo(o)
	owned := claim("p-scratch", "1Gi", "")
	owned.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Pod", Name: "p", Uid: "p",
		Controller: proto.Bool(true)}}
	others := claim("p-scratch", "1Gi", "")
	others.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Pod", Name: "p", Uid: "before",
		Controller: proto.Bool(true)}}
	for why, claims := range map[string][]*corev1.PersistentVolumeClaim{
		`waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"`: nil,
		`PVC ns/p-scratch was not created for pod ns/p (pod is not owner)`:                        {others},
		"": {owned},
	} {
		p := newPlugin(t, nil)
		snapshot := snapshotOf(class(storage.NoProvisioner), claims, nil)
		_, got := p.PreFilter(framework.NewCycleState(snapshot), pod, snapshot)
		if got.Message() != why || got.IsSuccess() != (why == "") {
			t.Errorf("says %q, want %q", got.Message(), why)
		}
	}
}
