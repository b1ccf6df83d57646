package volumebinding

import (
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
)

func newPlugin(t *testing.T, c *client.Client) *Plugin {
	t.Helper()
	p, err := New(DefaultArgs(), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func size(s string) map[string]*metav1.Quantity {
	return map[string]*metav1.Quantity{"storage": {String_: s}}
}

// volume is a free one of a class that waits; with hosts only those can reach it.
func volume(name, size_ string, hosts ...string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name, Uid: name},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: size(size_), StorageClassName: "late", AccessModes: []string{"ReadWriteOnce"},
			PersistentVolumeSource: &corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" + name}},
		},
		Status: &corev1.PersistentVolumeStatus{Phase: "Available"},
	}
	if len(hosts) > 0 {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
				MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: storage.HostnameLabel, Operator: "In", Values: hosts}},
			}}}}
	}
	return v
}

// claim waits for a volume of the class; with a volume it is bound to that.
func claim(name, size_, volume string) *corev1.PersistentVolumeClaim {
	class := "late"
	c := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: name},
		Spec: &corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: volume, AccessModes: []string{"ReadWriteOnce"},
			Resources: &corev1.VolumeResourceRequirements{Requests: size(size_)},
		},
		Status: &corev1.PersistentVolumeClaimStatus{Phase: "Pending"},
	}
	if volume != "" {
		storage.Annotate(c, storage.BindCompleted, "yes")
	}
	return c
}

func class(provisioner string) *storagev1.StorageClass {
	mode := storage.WaitForFirstConsumer
	return &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: "late"}, Provisioner: provisioner,
		VolumeBindingMode: &mode}
}

func using(claims ...string) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p", Uid: "p"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
	}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, &corev1.Volume{Name: c, VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return framework.NewPodInfo(p)
}

// snapshotOf has the nodes n1 and n2.
func snapshotOf(
	c *storagev1.StorageClass, claims []*corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume,
) *framework.Snapshot {
	s := framework.NewSnapshot()
	for _, name := range []string{"n1", "n2"} {
		m := &metav1.ObjectMeta{Name: name, Labels: map[string]string{storage.HostnameLabel: name}}
		s.Set(name, framework.NewNodeInfo(name, &corev1.Node{Metadata: m}))
	}
	s.SetClass("late", c)
	for _, o := range claims {
		s.SetClaim(cache.KeyOf(o), framework.NewClaimInfo(o))
	}
	for _, v := range volumes {
		s.SetVolume(v.Metadata.Name, Volume(v))
	}
	return s
}

// What is said of the node n1, and what Reserve plans there: "claim=volume", or "claim" for one whose volume is to be
// made.
// spec: SCHED-4, ATT-2
func TestNode(t *testing.T) {
	const (
		conflict = "node(s) didn't match PersistentVolume's node affinity"
		none     = "node(s) didn't find available persistent volumes to bind"
		gone     = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	)
	type claims = []*corev1.PersistentVolumeClaim
	type volumes = []*corev1.PersistentVolume
	on2 := claim("c", "1Gi", "")
	storage.Annotate(on2, storage.SelectedNode, "n2")
	on1 := claim("c", "1Gi", "")
	storage.Annotate(on1, storage.SelectedNode, "n1")
	aside := volume("aside", "9Gi")
	aside.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c"}
	alien := volume("alien", "9Gi")
	alien.Spec.ClaimRef, alien.Spec.StorageClassName = aside.Spec.ClaimRef, "other"
	released := volume("released", "1Gi")
	released.Status.Phase = "Released"
	for _, tc := range []struct {
		name     string
		by       string // the class's provisioner
		claims   claims
		volumes  volumes
		want     string // PreFilter skips, or why the node is refused
		planned  string
		preFlies bool
	}{
		{"no claims", "", nil, nil, "skip", "", true},
		{"bound, reached from everywhere", "", claims{claim("c", "1Gi", "v")}, volumes{volume("v", "1Gi")}, "skip", "",
			true},
		{"bound, reached", "", claims{claim("c", "1Gi", "v")}, volumes{volume("v", "1Gi", "n1")}, "", "", true},
		{"bound, not reached", "", claims{claim("c", "1Gi", "v")}, volumes{volume("v", "1Gi", "n2")}, conflict, "", false},
		{"bound to nothing", "", claims{claim("c", "1Gi", "v")}, nil, gone, "", false},
		{"open, nothing there", "", claims{claim("c", "1Gi", "")}, nil, none, "", false},
		{"open, only a released one", "", claims{claim("c", "1Gi", "")}, volumes{released}, none, "", false},
		{"open, on another node", "", claims{claim("c", "1Gi", "")}, volumes{volume("v", "1Gi", "n2")}, none, "", false},
		{"the smallest that fits", "", claims{claim("c", "2Gi", "")},
			volumes{volume("a", "5Gi"), volume("b", "3Gi", "n1", "n2"), volume("d", "1Gi", "n1"), volume("e", "2Gi", "n2")}, "",
			"c=b", false},
		{"rather set aside than small", "", claims{claim("c", "1Gi", "")}, volumes{volume("a", "1Gi"), aside}, "", "c=aside",
			false},
		{"not of another class, set aside or not", "", claims{claim("c", "1Gi", "")}, volumes{alien, volume("a", "1Gi")}, "",
			"c=a", false},
		{"bound to nothing, and not reached", "", claims{claim("b", "1Gi", "x"), claim("c", "1Gi", "v")},
			volumes{volume("v", "1Gi", "n2")}, gone, "", false},
		{"not what is set aside for another", "", claims{claim("other", "1Gi", "")}, volumes{aside}, none, "", false},
		{"each its own", "", claims{claim("c", "1Gi", ""), claim("d", "1Gi", "")},
			volumes{volume("a", "1Gi"), volume("b", "2Gi", "n1")}, "", "c=a d=b", false},
		{"one is not enough for two", "", claims{claim("c", "1Gi", ""), claim("d", "1Gi", "")}, volumes{volume("a", "1Gi")},
			none, "", false},
		{"the smaller claim chooses first", "", claims{claim("c", "2Gi", ""), claim("d", "1Gi", "")},
			volumes{volume("a", "2Gi"), volume("b", "3Gi")}, "", "c=b d=a", false},
		{"not reached, and nothing there", "", claims{claim("b", "1Gi", "v"), claim("c", "1Gi", "")},
			volumes{volume("v", "1Gi", "n2")}, conflict + ", " + none, "", false},
		{"bound to nothing, and nothing there", "", claims{claim("b", "1Gi", "v"), claim("c", "1Gi", "")}, nil, none + ", " +
			gone, "", false},
		{"made", "example.com/p", claims{claim("c", "1Gi", "")}, nil, "", "c", false},
		{"rather taken than made", "example.com/p", claims{claim("c", "1Gi", ""), claim("d", "1Gi", "")},
			volumes{volume("a", "1Gi")}, "", "c=a d", false},
		{"made on another node", "example.com/p", claims{on2}, volumes{volume("a", "1Gi")}, none, "", false},
		{"being made here", "example.com/p", claims{on1}, volumes{volume("a", "1Gi")}, "", "c", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var names []string
			for _, c := range tc.claims {
				names = append(names, c.Metadata.Name)
			}
			if tc.by == "" {
				tc.by = storage.NoProvisioner
			}
			s := snapshotOf(class(tc.by), tc.claims, tc.volumes)
			p, cycle, pod := newPlugin(t, client.New(nil)), framework.NewCycleState(s), using(names...)
			_, status := p.PreFilter(cycle, pod, s)
			if (status.Code() == framework.Skip) != (tc.want == "skip") || status.IsRejected() {
				t.Fatalf("PreFilter says %v: %s", status.Code(), status.Message())
			}
			if status.Code() != framework.Skip {
				status = p.Filter(cycle, pod, s.Node("n1"))
				if got := strings.Join(status.Reasons(), ", "); got != tc.want || tc.want != "" &&
					status.Code() != framework.Unresolvable {
					t.Fatalf("%v %q, want %q", status.Code(), got, tc.want)
				}
			}
			if tc.want != "" && tc.want != "skip" {
				if got := p.Reserve(cycle, pod, "n1"); strings.Contains(tc.want, none) && got.IsSuccess() {
					t.Error("Reserve takes the node")
				}
				return
			}
			if got := p.Reserve(cycle, pod, "n1"); !got.IsSuccess() {
				t.Fatalf("Reserve says %s", got.Message())
			}
			if got := planned(cycle.VolumePlan()); got != tc.planned {
				t.Errorf("planned %q, want %q", got, tc.planned)
			}
			if got := p.PreFlight(cycle, pod, "n1").Code() == framework.Skip; got != tc.preFlies {
				t.Errorf("PreBind has nothing to do: %v", got)
			}
		})
	}
}

func planned(p *framework.VolumePlan) string {
	if p == nil {
		return ""
	}
	var list []string
	for _, b := range p.Bind {
		list = append(list, b.Claim.Key.Name+"="+b.Volume.Name)
	}
	for _, c := range p.Provision {
		list = append(list, c.Key.Name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// Which changes are worth another try.
// spec: SCHED-6
func TestHelps(t *testing.T) {
	there, other := framework.NewClaimInfo(claim("c", "1Gi", "")), framework.NewClaimInfo(claim("d", "1Gi", ""))
	elsewhere := claim("c", "1Gi", "")
	elsewhere.Metadata.Namespace = "other"
	allowed := class("example.com/p")
	allowed.AllowedTopologies = []*corev1.TopologySelectorTerm{{}}
	p := newPlugin(t, client.New(nil))
	for name, tc := range map[string]struct {
		change framework.Change
		want   bool
	}{
		"the claim changes":     {framework.Change{Event: framework.ClaimChanged, Claim: there.Claim}, true},
		"another claim changes": {framework.Change{Event: framework.ClaimChanged, Claim: other.Claim}, false},
		"one elsewhere changes": {framework.Change{Event: framework.ClaimChanged, Claim: elsewhere}, false},
		"a volume changes":      {framework.Change{Event: framework.VolumeChanged, Volume: volume("v", "1Gi")}, true},
		"a class comes":         {framework.Change{Event: framework.ClassChanged, Class: class("")}, true},
		"a class as before": {framework.Change{Event: framework.ClassChanged, Class: class(""), OldClass: class("")},
			false},
		"a class allows more": {framework.Change{Event: framework.ClassChanged, Class: class(""), OldClass: allowed},
			true},
		"a node comes": {framework.Change{Event: framework.NodeAdded, Node: &corev1.Node{}}, true},
		"a volume is free again": {framework.Change{Event: framework.VolumesFreed,
			Freed: &framework.VolumePlan{Bind: []framework.VolumeChoice{{Claim: other}}}}, true},
		"its claim is open again": {framework.Change{Event: framework.VolumesFreed,
			Freed: &framework.VolumePlan{Provision: []*framework.ClaimInfo{other, there}}}, true},
		"another claim is": {framework.Change{Event: framework.VolumesFreed,
			Freed: &framework.VolumePlan{Provision: []*framework.ClaimInfo{other}}}, false},
		"one in another namespace is": {framework.Change{Event: framework.VolumesFreed, Freed: &framework.VolumePlan{
			Provision: []*framework.ClaimInfo{framework.NewClaimInfo(elsewhere)},
		}}, false},
	} {
		if got := p.Helps(using("c"), &tc.change); got != tc.want || p.Events()&tc.change.Event == 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if p.Events()&framework.PodGone != 0 {
		t.Error("a pod that goes frees no volumes")
	}
}

func TestArgs(t *testing.T) {
	for want, a := range map[string]Args{
		"": {BindTimeoutSeconds: 0},
		"args.bindTimeoutSeconds: -1 is negative": {BindTimeoutSeconds: -1},
		"args.shape: nodes are not scored by their storage": {Shape: make([]struct {
			Utilization int32 `json:"utilization"`
			Score       int32 `json:"score"`
		}, 1)},
	} {
		got := ""
		if err := a.Validate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %q", a, got)
		}
	}
}
