package volumezone

import (
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
)

const (
	zone, region       = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
	oldZone, oldRegion = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
)

// labels reads "key=value;key=value".
func labels(text string) map[string]string {
	m := map[string]string{}
	for _, f := range strings.Split(text, ";") {
		if k, v, ok := strings.Cut(f, "="); ok {
			m[k] = v
		}
	}
	return m
}

func volume(text string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Metadata: &metav1.ObjectMeta{Name: "v", Labels: labels(text)}}
}

func claim(name, class, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:     &corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: volume},
	}
}

func class(name, mode string) *storagev1.StorageClass {
	return &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: name}, VolumeBindingMode: &mode}
}

// using is a pod with the claim c.
func using() *framework.PodInfo {
	return framework.NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec: &corev1.PodSpec{
			Volumes: []*corev1.Volume{{VolumeSource: &corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			}}},
		}})
}

// Which nodes are where the labels of a volume say.
// spec: SCHED-4
func TestFilter(t *testing.T) {
	const refused = "node(s) had no available volume zone"
	for _, tc := range []struct{ volume, node, want string }{
		{zone + "=a", zone + "=a", ""},
		{zone + "=a", zone + "=b", refused},
		{zone + "=a", region + "=a", refused}, // it has no zone, in a cluster that has some
		{zone + "=a", "", ""},
		{zone + "=a__b", zone + "=b", ""},
		{zone + "=a__ b ", zone + "=b", ""},
		{zone + "=a__b", zone + "=a__b", refused},
		{zone + "=a__", zone + "=c", "skip"}, // nobody can read it
		{"disk=ssd", zone + "=c", "skip"},
		{oldZone + "=a", zone + "=a", ""},
		{oldZone + "=a", oldZone + "=a", ""},
		{oldZone + "=a", oldZone + "=b;" + zone + "=a", refused},
		{zone + "=a", oldZone + "=a", refused}, // as in Kubernetes, it is not the other way round
		{oldRegion + "=r", region + "=r;" + zone + "=a", ""},
		{zone + "=a;" + region + "=r", zone + "=a;" + region + "=s", refused},
		{zone + "=a;" + region + "=r", zone + "=a;" + region + "=r", ""},
	} {
		s := framework.NewSnapshot()
		v, c := volume(tc.volume), claim("c", "", "v")
		s.SetVolume("v", framework.NewVolumeInfo(v, nil))
		s.SetClaim(cache.KeyOf(c), framework.NewClaimInfo(c))
		p, cycle := New(), framework.NewCycleState(s)
		_, status := p.PreFilter(cycle, using(), s)
		if status.Code() == framework.Skip {
			if tc.want != "skip" {
				t.Errorf("volume %q: skipped", tc.volume)
			}
			continue
		}
		n := framework.NewNodeInfo("n", &corev1.Node{Metadata: &metav1.ObjectMeta{Labels: labels(tc.node)}})
		if got := p.Filter(cycle, using(), n); got.Message() != tc.want || tc.want != "" &&
			got.Code() != framework.Unresolvable {
			t.Errorf("volume %q, node %q: %v %q, want %q", tc.volume, tc.node, got.Code(), got.Message(), tc.want)
		}
	}
}

// Pods whose claims are not bound are refused in Kubernetes' words, where VolumeBinding does not see to them.
func TestUnbound(t *testing.T) {
	for _, tc := range []struct {
		claim *corev1.PersistentVolumeClaim
		want  string
	}{
		{claim("other", "", ""), `persistentvolumeclaim "c" not found`},
		{claim("c", "", ""), "PersistentVolumeClaim had no pv name and storageClass name"},
		{claim("c", "gone", ""), `storageclass.storage.k8s.io "gone" not found`},
		{claim("c", "now", ""), "PersistentVolume had no name"},
		{claim("c", "late", ""), ""},
		{claim("c", "late", "gone"), `persistentvolume "gone" not found`},
	} {
		s := framework.NewSnapshot()
		s.SetClaim(cache.KeyOf(tc.claim), framework.NewClaimInfo(tc.claim))
		s.SetClass("now", class("now", "Immediate"))
		s.SetClass("late", class("late", "WaitForFirstConsumer"))
		_, status := New().PreFilter(framework.NewCycleState(s), using(), s)
		if status.Message() != tc.want || status.Code() != map[bool]framework.Code{true: framework.Skip,
			false: framework.Unresolvable}[tc.want == ""] {
			t.Errorf("%v %q, want %q", status.Code(), status.Message(), tc.want)
		}
	}
}

// Which changes are worth another try.
// spec: SCHED-6
func TestHelps(t *testing.T) {
	for name, tc := range map[string]struct {
		change framework.Change
		want   bool
	}{
		"the claim changes": {framework.Change{Event: framework.ClaimChanged, Claim: claim("c", "", ""),
			OldClaim: claim("c", "", "")}, true},
		"another claim changes": {framework.Change{Event: framework.ClaimChanged, Claim: claim("d", "", "")}, false},
		"a volume comes":        {framework.Change{Event: framework.VolumeChanged, Volume: volume("")}, true},
		"a volume changes zone": {framework.Change{Event: framework.VolumeChanged, Volume: volume(zone + "=a"),
			OldVolume: volume(zone + "=b")}, true},
		"a volume loses it": {framework.Change{Event: framework.VolumeChanged, Volume: volume(""),
			OldVolume: volume(zone + "=b")}, true},
		"a volume changes": {framework.Change{Event: framework.VolumeChanged, Volume: volume(zone + "=a;x=1"),
			OldVolume: volume(zone + "=a")}, false},
		"a late class comes": {framework.Change{Event: framework.ClassChanged,
			Class: class("late", "WaitForFirstConsumer")}, true},
		"another class comes":   {framework.Change{Event: framework.ClassChanged, Class: class("now", "Immediate")}, false},
		"a node has new labels": {framework.Change{Event: framework.NodeLabels, Node: &corev1.Node{}}, true},
		"a late class as before": {framework.Change{Event: framework.ClassChanged,
			Class: class("late", "WaitForFirstConsumer"), OldClass: class("late", "")}, false},
	} {
		if got := New().Helps(using(), &tc.change); got != tc.want || New().Events()&tc.change.Event == 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
