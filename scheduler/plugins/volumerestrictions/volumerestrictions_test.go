package volumerestrictions

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
)

func using(namespace, name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name, Uid: namespace + name},
		Spec: &corev1.PodSpec{}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, &corev1.Volume{VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return p
}

func claim(name, mode string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:     &corev1.PersistentVolumeClaimSpec{AccessModes: []string{mode}},
	}
}

// Who may have a claim for itself, or not.
// spec: SCHED-4
func TestOncePod(t *testing.T) {
	const inUse = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use " +
		"by another pod"
	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		there []*corev1.Pod
		code  framework.Code // of PreFilter
		want  string
	}{
		{"no claim", using("ns", "p"), nil, framework.Skip, ""},
		{"a claim of many", using("ns", "p", "many"), []*corev1.Pod{using("ns", "q", "many")}, framework.Skip, ""},
		{"unused", using("ns", "p", "once"), nil, framework.Success, ""},
		{"used", using("ns", "p", "once"), []*corev1.Pod{using("ns", "q", "once")}, framework.Success, inUse},
		{"used, among others", using("ns", "p", "many", "once"), []*corev1.Pod{using("ns", "q", "many", "once")},
			framework.Success, inUse},
		{"used under the name, elsewhere", using("ns", "p", "once"), []*corev1.Pod{using("other", "q", "once")},
			framework.Success, ""},
		{"unknown", using("ns", "p", "none"), nil, framework.Unresolvable, `persistentvolumeclaim "none" not found`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := framework.NewSnapshot()
			for _, c := range []*corev1.PersistentVolumeClaim{claim("many", "ReadWriteMany"),
				claim("once", "ReadWriteOncePod")} {
				s.SetClaim(cache.KeyOf(c), framework.NewClaimInfo(c))
			}
			empty, full := framework.NewNodeInfo("empty", &corev1.Node{}), framework.NewNodeInfo("full", &corev1.Node{})
			for _, p := range tc.there {
				full = full.WithPod(framework.NewPodInfo(p))
			}
			s.Set("empty", empty)
			s.Set("full", full)
			p, cycle, info := New(), framework.NewCycleState(s), framework.NewPodInfo(tc.pod)
			_, status := p.PreFilter(cycle, info, s)
			if status.Code() != tc.code {
				t.Fatalf("PreFilter says %v", status)
			}
			if tc.code != framework.Success {
				if got := status.Message(); got != tc.want {
					t.Errorf("PreFilter says %q", got)
				}
				return
			}
			for _, n := range []*framework.NodeInfo{empty, full} {
				got := p.Filter(cycle, info, n)
				if got.Message() != tc.want || tc.want != "" && got.Code() != framework.Unschedulable {
					t.Errorf("%s: %v %q", n.Name, got.Code(), got.Message())
				}
			}
		})
	}
}

// Which changes are worth another try.
// spec: SCHED-6
func TestHelps(t *testing.T) {
	pod := framework.NewPodInfo(using("ns", "p", "once"))
	for name, tc := range map[string]struct {
		change framework.Change
		want   bool
	}{
		"a user goes": {framework.Change{Event: framework.PodGone, OldPod: using("ns", "q", "many", "once")},
			true},
		"another pod goes":   {framework.Change{Event: framework.PodGone, OldPod: using("ns", "q", "many")}, false},
		"one elsewhere goes": {framework.Change{Event: framework.PodGone, OldPod: using("other", "q", "once")}, false},
		"the claim comes": {framework.Change{Event: framework.ClaimChanged, Claim: claim("once", "ReadWriteOncePod")},
			true},
		"another comes": {framework.Change{Event: framework.ClaimChanged, Claim: claim("many", "ReadWriteOncePod")},
			false},
		"the claim is as usual": {framework.Change{Event: framework.ClaimChanged, Claim: claim("once", ""),
			OldClaim: claim("once", "")}, false},
		"a node comes": {framework.Change{Event: framework.NodeAdded, Node: &corev1.Node{}}, true},
	} {
		if got := New().Helps(pod, &tc.change); got != tc.want || New().Events()&tc.change.Event == 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
