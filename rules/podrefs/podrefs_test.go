package podrefs_test

import (
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/podrefs"
)

func ref(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }

// full returns a spec that refers, from every place where it can, to a ConfigMap "cm-PLACE" and a Secret "s-PLACE".
func full() *corev1.PodSpec {
	env := func(place string) []*corev1.EnvVar {
		return []*corev1.EnvVar{
			{Name: "x", Value: "y"},
			{Name: "f", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "c", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: ref("cm-" + place), Key: "k"}}},
			{Name: "s", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: ref("s-" + place), Key: "k"}}},
		}
	}
	from := func(place string) []*corev1.EnvFromSource {
		return []*corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("cm-" + place)}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("s-" + place)}},
			{SecretRef: &corev1.SecretEnvSource{}},
		}
	}
	volume := func(s *corev1.VolumeSource) *corev1.Volume { return &corev1.Volume{Name: "v", VolumeSource: s} }
	return &corev1.PodSpec{
		ServiceAccountName: "account",
		ImagePullSecrets:   []*corev1.LocalObjectReference{ref("s-pull"), ref("")},
		InitContainers:     []*corev1.Container{{Env: env("init-env"), EnvFrom: from("init-from")}},
		Containers:         []*corev1.Container{{}, {Env: env("env"), EnvFrom: from("from")}},
		EphemeralContainers: []*corev1.EphemeralContainer{{}, {EphemeralContainerCommon: &corev1.EphemeralContainerCommon{
			Env: env("eph-env"), EnvFrom: from("eph-from"),
		}}},
		Volumes: []*corev1.Volume{
			{Name: "none"},
			volume(&corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("cm-volume")}}),
			volume(&corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s-volume"}}),
			volume(&corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []*corev1.VolumeProjection{
				{DownwardAPI: &corev1.DownwardAPIProjection{}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: ref("s-projected")}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("cm-projected")}},
			}}}),
			volume(&corev1.VolumeSource{Csi: &corev1.CSIVolumeSource{NodePublishSecretRef: ref("s-csi")}}),
			volume(&corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s-azure"}}),
			volume(&corev1.VolumeSource{Cephfs: &corev1.CephFSVolumeSource{SecretRef: ref("s-ceph")}}),
			volume(&corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: ref("s-cinder")}}),
			volume(&corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: ref("s-flex")}}),
			volume(&corev1.VolumeSource{Iscsi: &corev1.ISCSIVolumeSource{SecretRef: ref("s-iscsi")}}),
			volume(&corev1.VolumeSource{Rbd: &corev1.RBDVolumeSource{SecretRef: ref("s-rbd")}}),
			volume(&corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: ref("s-scaleio")}}),
			volume(&corev1.VolumeSource{Storageos: &corev1.StorageOSVolumeSource{SecretRef: ref("s-storageos")}}),
		},
	}
}

// Every place where a pod can refer to a ConfigMap or a Secret is found.
//
// spec: OBJ-15
func TestEveryPlaceIsFound(t *testing.T) {
	places := []string{"env", "eph-env", "eph-from", "from", "init-env", "init-from", "projected", "volume"}
	secretPlaces := append([]string{"azure", "ceph", "cinder", "csi", "flex", "iscsi", "pull", "rbd", "scaleio",
		"storageos"}, places...)
	for _, x := range []struct {
		prefix string
		places []string
		got    []string
	}{
		{"cm-", places, slices.Sorted(podrefs.ConfigMaps(full()))},
		{"s-", secretPlaces, slices.Sorted(podrefs.Secrets(full()))},
	} {
		var want []string
		for _, p := range x.places {
			want = append(want, x.prefix+p)
		}
		slices.Sort(want)
		if !slices.Equal(x.got, want) {
			t.Errorf("found %v, want %v", x.got, want)
		}
	}
	for range podrefs.Secrets(nil) {
		t.Error("no pod refers to a Secret")
	}
	for range podrefs.ConfigMaps(&corev1.PodSpec{}) {
		t.Error("an empty pod refers to a ConfigMap")
	}
}

// Who has found what they look for stops looking, wherever that is.
func TestLookingEndsEarly(t *testing.T) {
	total := 0
	for range podrefs.Secrets(full()) {
		total++
	}
	for stop := 1; stop <= total; stop++ {
		n := 0
		for range podrefs.Secrets(full()) {
			if n++; n == stop {
				break
			}
		}
	}
	for stop := 1; stop <= 8; stop++ {
		n := 0
		for range podrefs.ConfigMaps(full()) {
			if n++; n == stop {
				break
			}
		}
	}
}

// A node needs the Secrets with which it mounts a volume, and not those with which it is attached.
func TestSecretsOfVolumes(t *testing.T) {
	in := func(name string) *corev1.SecretReference { return &corev1.SecretReference{Namespace: "ns", Name: name} }
	v := &corev1.PersistentVolume{Spec: &corev1.PersistentVolumeSpec{
		PersistentVolumeSource: &corev1.PersistentVolumeSource{Csi: &corev1.CSIPersistentVolumeSource{
			NodeStageSecretRef: in("stage"), NodePublishSecretRef: in("publish"), NodeExpandSecretRef: in("expand"),
			ControllerPublishSecretRef: in("attach"), ControllerExpandSecretRef: in("grow"),
		}}}}
	var got []string
	for namespace, name := range podrefs.VolumeSecrets(v) {
		got = append(got, namespace+"/"+name)
	}
	if want := []string{"ns/stage", "ns/publish", "ns/expand"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range podrefs.VolumeSecrets(&corev1.PersistentVolume{}) {
		t.Error("an empty volume has a secret")
	}
}

// spec: STATIC-1
func TestAny(t *testing.T) {
	projected := func(p *corev1.VolumeProjection) *corev1.VolumeSource {
		return &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []*corev1.VolumeProjection{p}}}
	}
	for _, x := range []struct {
		want   string
		volume *corev1.VolumeSource
	}{
		{"", &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{"", &corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
		{"", projected(&corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}})},
		{"configmaps (via configmap volumes)", &corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		{"configmaps", &corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("c")}}},
		{"secrets (via secret volumes)", &corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}},
		{"secrets", &corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
		{"secrets (via azureFile volumes)", &corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{}}},
		{"csidrivers (via CSI volumes)", &corev1.VolumeSource{Csi: &corev1.CSIVolumeSource{}}},
		{"endpoints (via glusterFS volumes)", &corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}}},
		{"persistentvolumeclaims",
			&corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}},
		{"persistentvolumeclaims (via ephemeral volumes)",
			&corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{"configmaps (via projected volumes)",
			projected(&corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}})},
		{"secrets (via projected volumes)", projected(&corev1.VolumeProjection{Secret: &corev1.SecretProjection{}})},
		{"serviceaccounts (via projected volumes)",
			projected(&corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}})},
		{"clustertrustbundles",
			projected(&corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}})},
		{"podcertificates", projected(&corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}})},
	} {
		spec := &corev1.PodSpec{Volumes: []*corev1.Volume{{VolumeSource: x.volume}}}
		if got := podrefs.Any(spec); got != x.want {
			t.Errorf("%v: %q, want %q", x.volume, got, x.want)
		}
	}
	for want, spec := range map[string]*corev1.PodSpec{
		"":                nil,
		"serviceaccounts": {ServiceAccountName: "a"},
		"secrets":         {ImagePullSecrets: []*corev1.LocalObjectReference{ref("s")}},
		"resourceclaims":  {ResourceClaims: []*corev1.PodResourceClaim{{Name: "c"}}},
	} {
		if got := podrefs.Any(spec); got != want {
			t.Errorf("%v: %q, want %q", spec, got, want)
		}
	}
}
