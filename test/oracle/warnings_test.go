package oracle

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	corev1 "monoplane.dev/api/core/v1"
	ourcore "monoplane.dev/apiserver/kinds/core"
	ourpod "monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/validation"
)

// remarkable are things in a valid pod that whoever makes it is told of, or nearly.
var remarkable = []func(r *rand.Rand, p *v1.Pod){
	func(r *rand.Rand, p *v1.Pod) { p.Name = pick(r, []string{"a.b", strings.Repeat("a", 64), "a"}) },
	func(r *rand.Rand, p *v1.Pod) {
		p.Spec.NodeSelector = map[string]string{pick(r, oldOrNot): "a"}
	},
	func(r *rand.Rand, p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{
			NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: pick(r, oldOrNot), Operator: "Exists"}}}}},
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1,
					Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: pick(r, oldOrNot),
						Operator: "In", Values: []string{pick(r, []string{"a", "-", strings.Repeat("a", 64)})}}}}}},
			},
			PodAffinity: &v1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: "a"}}},
			PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: "a"}}}},
		}
	},
	func(r *rand.Rand, p *v1.Pod) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: pick(r, oldOrNot), WhenUnsatisfiable: "DoNotSchedule"})
	},
	func(r *rand.Rand, p *v1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		annotation := pick(r, [][2]string{{"scheduler.alpha.kubernetes.io/critical-pod", ""},
			{"security.alpha.kubernetes.io/sysctls", "a"}, {"security.alpha.kubernetes.io/unsafe-sysctls", "a"},
			{"seccomp.security.alpha.kubernetes.io/pod", "runtime/default"},
			{"container.seccomp.security.alpha.kubernetes.io/" + p.Spec.Containers[0].Name, "unconfined"},
			{"container.apparmor.security.beta.kubernetes.io/" + p.Spec.Containers[0].Name, "unconfined"},
			{"container.apparmor.security.beta.kubernetes.io/" + p.Spec.Containers[0].Name, "localhost/p"}})
		p.Annotations[annotation[0]] = annotation[1]
	},
	func(r *rand.Rand, p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "more", VolumeSource: pick(r, []v1.VolumeSource{
			{GitRepo: &v1.GitRepoVolumeSource{Repository: "r"}},
			{ScaleIO: &v1.ScaleIOVolumeSource{Gateway: "g", System: "s", VolumeName: "v",
				SecretRef: &v1.LocalObjectReference{Name: "s"}}},
			{Flocker: &v1.FlockerVolumeSource{DatasetName: "d"}},
			{StorageOS: &v1.StorageOSVolumeSource{VolumeName: "v"}},
			{Quobyte: &v1.QuobyteVolumeSource{Registry: "r:1", Volume: "v"}},
			{Glusterfs: &v1.GlusterfsVolumeSource{EndpointsName: "e", Path: "p"}},
			{CephFS: &v1.CephFSVolumeSource{Monitors: []string{"m"}}},
			{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDImage: "i"}},
			{PhotonPersistentDisk: &v1.PhotonPersistentDiskVolumeSource{PdID: "p"}},
			{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{
				Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{"ReadWriteOnce"},
					Resources: v1.VolumeResourceRequirements{Requests: amounts("storage", pick(r, []string{"1", "1500m"})),
						Limits: amounts("storage", pick(r, []string{"2", "2500m"}))}}}}},
		})})
	},
	func(r *rand.Rand, p *v1.Pod) {
		items := func() (list []v1.KeyToPath) {
			for range r.IntN(4) {
				list = append(list, v1.KeyToPath{Key: "k", Path: pick(r, []string{"a", "a/b", "b/", "b", "a/b/c", "ab"})})
			}
			return list
		}
		files := func() (list []v1.DownwardAPIVolumeFile) {
			for range r.IntN(3) {
				list = append(list, v1.DownwardAPIVolumeFile{Path: pick(r, []string{"a", "a/b"}),
					FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}})
			}
			return list
		}
		name := v1.LocalObjectReference{Name: "n"}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "files", VolumeSource: pick(r, []v1.VolumeSource{
			{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name, Items: items()}},
			{Secret: &v1.SecretVolumeSource{SecretName: "n", Items: items()}},
			{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: files()}},
			{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: name, Items: items()}},
				{Secret: &v1.SecretProjection{LocalObjectReference: name, Items: items()}},
				{DownwardAPI: &v1.DownwardAPIProjection{Items: files()}},
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "a"}}, {}}[r.IntN(3):]}},
		})})
	},
	func(r *rand.Rand, p *v1.Pod) {
		for range 1 + r.IntN(2) {
			p.Spec.HostAliases = append(p.Spec.HostAliases, v1.HostAlias{IP: pick(r, addresses)})
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets,
				v1.LocalObjectReference{Name: pick(r, []string{"", "x"})})
		}
	},
	func(r *rand.Rand, p *v1.Pod) {
		p.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{pick(r, addresses), pick(r, addresses)}}
	},
	func(r *rand.Rand, p *v1.Pod) {
		amount := pick(r, []string{"100m", "1", "1500m", "0.0001"})
		c := &p.Spec.Containers[0]
		c.Resources.Limits = amounts(pick(r, []string{"memory", "ephemeral-storage"}), amount)
		c.Resources.Requests = nil
		p.Spec.Resources = nil
	},
	func(r *rand.Rand, p *v1.Pod) {
		c := &p.Spec.Containers[0]
		for range 2 {
			e := v1.EnvVar{Name: "A", Value: pick(r, []string{"x", "$(A)", "$(A)x", ""})}
			if r.IntN(4) == 0 {
				e = v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{
					FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
			}
			c.Env = append(c.Env, e)
		}
	},
	func(r *rand.Rand, p *v1.Pod) {
		for range 1 + r.IntN(3) {
			c := &p.Spec.Containers[r.IntN(len(p.Spec.Containers))]
			c.Ports = append(c.Ports, v1.ContainerPort{
				Name: pick(r, []string{"", "http", "p"}), ContainerPort: pick(r, []int32{80, 53}),
				HostPort: pick(r, []int32{0, 8080, 53}), HostIP: pick(r, []string{"", "", "127.0.0.1", "1.2.3.4"}),
				Protocol: pick(r, []v1.Protocol{"", "TCP", "UDP"})})
		}
	},
	func(_ *rand.Rand, p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(-5)) },
	func(r *rand.Rand, p *v1.Pod) {
		p.Spec.Overhead = amounts("memory", pick(r, []string{"100m", "1"}),
			"ephemeral-storage", pick(r, []string{"5m", "1"}))
	},
}

var (
	oldOrNot = []string{"kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"beta.kubernetes.io/instance-type", "app.kubernetes.io/created-by",
		"scheduler.alpha.kubernetes.io/preferAvoidPods", "node-role.kubernetes.io/master"}
	addresses = []string{"10.0.0.1", "FD00::1", "fd00:0::1", "::ffff:10.0.0.1", "010.0.0.1", "fd00::1"}
)

// warned is what somebody is told who makes a valid object.
type warned struct {
	Wrong bool
	Texts []string
}

// spec: OBJ-4
func TestTheSameIsToldOfPods(t *testing.T) {
	r := random(t)
	bad, heard := 0, 0
	for i := 0; i < *count && bad < 25; i++ {
		k := pick(r, []func() *v1.Pod{minimal, rich})()
		for range 1 + r.IntN(3) {
			pick(r, remarkable)(r, k)
		}
		p := ourPod(t, k)
		ourpod.Default(p)
		ourpod.CompleteNew(p)
		if theirs := ask[warned](t, "warnings-of-pods", k); !theirs.Wrong && len(ourpod.Validate(p)) == 0 {
			heard += len(theirs.Texts)
			bad += sameTold(t, "pod", podspec.WarningsOfPod(p), theirs.Texts)
		}
		o, err := ours(templateOf(k), &corev1.PodTemplate{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultPodTemplate(o)
		theirs := ask[warned](t, "warnings-of-podtemplates", templateOf(k))
		if !theirs.Wrong && len(ourcore.ValidatePodTemplate(o)) == 0 {
			mine := podspec.WarningsOfTemplate(validation.NewPath("template"), o.GetTemplate())
			bad += sameTold(t, "template", mine, theirs.Texts)
		}
	}
	if heard < *count/2 {
		t.Errorf("Kubernetes says %d things of %d pods: that compares too little", heard, *count)
	}
}

// sameTold compares two lists, in any order: Kubernetes goes through maps.
func sameTold(t *testing.T, what string, mine, theirs []string) int {
	t.Helper()
	slices.Sort(mine)
	slices.Sort(theirs)
	if slices.Equal(mine, theirs) {
		return 0
	}
	t.Errorf("%s: told are\n  %s\nby Kubernetes\n  %s", what, strings.Join(mine, "\n  "), strings.Join(theirs, "\n  "))
	return 1
}
