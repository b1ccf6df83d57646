package oracle

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/pullsecret"
	"monoplane.dev/rules/podrefs"
	"monoplane.dev/rules/resources"
)

// The objects of the namespace, as Kubernetes has them.
var (
	configMaps = map[string]map[string]string{
		"c1": {"A": "1", "B": "$(A)", "x.y": "dot"}, "c2": {"A": "other", "C": "$$(A) $(B", "D": ""},
	}
	secrets = map[string]map[string]string{"s1": {"A": "s", "E": "\xff$(A)"}, "s2": {"B": "t"}}
	givable = map[string]string{"cpu": "7500m", "memory": "30Gi", "ephemeral-storage": "123456789"}
)

// speaking returns a pod with containers whose variables come from everywhere.
func speaking(r *rand.Rand) *v1.Pod {
	k := minimal()
	k.UID, k.Spec.NodeName, k.Spec.ServiceAccountName = "u", "n", "sa"
	k.Labels = map[string]string{"l": "$(A)", "m": "a\"\n\té"}
	k.Annotations = map[string]string{"an": "x"}
	if r.IntN(3) == 0 {
		k.Spec.Resources = &v1.ResourceRequirements{Limits: certain(r)}
	}
	container := func(name string) v1.Container {
		c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: certain(r), Requests: certain(r)}}
		for range r.IntN(3) {
			c.EnvFrom = append(c.EnvFrom, source(r))
		}
		for range r.IntN(8) {
			c.Env = append(c.Env, variable(r))
		}
		for range r.IntN(3) {
			c.Command, c.Args = append(c.Command, text(r)), append(c.Args, text(r))
		}
		return c
	}
	k.Spec.Containers = []v1.Container{container("c"), container("d")}
	k.Spec.InitContainers = []v1.Container{container("i")}
	return k
}

func certain(r *rand.Rand) v1.ResourceList {
	l := v1.ResourceList{}
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi"} {
		if r.IntN(3) == 0 {
			l[name] = resource.MustParse(pick(r, []string{"0", "1", "1m", "1500m", "1Gi", "3G", "1000001"}))
		}
	}
	return l
}

func text(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(pick(r, []string{"$(A)", "$(B)", "$(none)", "$$(A)", "$", "$$", "(", ")", "x", "$(", "$(P_A)", " "}))
	}
	return b.String()
}

func source(r *rand.Rand) v1.EnvFromSource {
	s := v1.EnvFromSource{Prefix: pick(r, []string{"", "", "P_"})}
	name, optional := v1.LocalObjectReference{Name: pick(r, []string{"c1", "c2", "s1", "s2", "none"})}, maybe(r,
		r.IntN(2) == 0)
	if strings.HasPrefix(name.Name, "s") {
		s.SecretRef = &v1.SecretEnvSource{LocalObjectReference: name, Optional: optional}
	} else {
		s.ConfigMapRef = &v1.ConfigMapEnvSource{LocalObjectReference: name, Optional: optional}
	}
	return s
}

func variable(r *rand.Rand) v1.EnvVar {
	e := v1.EnvVar{Name: pick(r, []string{"A", "B", "C", "D", "E", "P_A", "F"})}
	optional := maybe(r, r.IntN(3) > 0)
	key := pick(r, []string{"A", "B", "D", "E", "none"})
	switch r.IntN(5) {
	case 0:
		e.ValueFrom = &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: pick(r, []string{
			"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels['l']", "metadata.labels['none']",
			"metadata.annotations['an']", "metadata.labels", "metadata.annotations", "metadata.name['x']", "spec.none",
		})}}
	case 1:
		e.ValueFrom = &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{
			ContainerName: pick(r, []string{"", "", "c", "d", "i", "none"}),
			Resource: pick(r, []string{"limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu",
				"requests.memory", "requests.ephemeral-storage", "limits.hugepages-2Mi", "requests.hugepages-2Mi",
				"limits.none", "cpu"}),
			Divisor: pick(r, []resource.Quantity{{}, resource.MustParse("1"), resource.MustParse("1m"),
				resource.MustParse("1Ki"), resource.MustParse("1M")}),
		}}
	case 2:
		e.ValueFrom = &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: pick(r, []string{"c1", "c2", "none"})}, Key: key,
			Optional: optional}}
	case 3:
		e.ValueFrom = &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: pick(r, []string{"s1", "s2", "none"})}, Key: key,
			Optional: optional}}
	default:
		e.Value = text(r)
	}
	return e
}

// content is the namespace and the node as Monoplane sees them.
func content() criconfig.Content {
	return criconfig.Content{
		ConfigMap: func(name string) (*corev1.ConfigMap, error) {
			if data, ok := configMaps[name]; ok {
				return &corev1.ConfigMap{Data: data}, nil
			}
			return nil, apierrors.NewNotFound(corev1.ConfigMapKind, name)
		},
		Secret: func(name string) (*corev1.Secret, error) {
			data, ok := secrets[name]
			if !ok {
				return nil, apierrors.NewNotFound(corev1.SecretKind, name)
			}
			s := &corev1.Secret{Data: map[string][]byte{}}
			for key, v := range data {
				s.Data[key] = []byte(v)
			}
			return s, nil
		},
		Allocatable: func() resources.List {
			m := map[string]*metav1.Quantity{}
			for name, q := range givable {
				m[name] = &metav1.Quantity{String_: q}
			}
			return resources.ListOf(m)
		},
	}
}

// variables are those of a container; not every text is UTF-8.
type variables map[string][]byte

func (v variables) texts() map[string]string {
	out := map[string]string{}
	for name, value := range v {
		out[name] = string(value)
	}
	return out
}

// environment is that of a container, with its command and its arguments, unless something is wrong with it.
type environment struct {
	Variables variables
	Words     [2][][]byte
	Wrong     string
}

// Environment, command and arguments of containers are those that Kubernetes gives, and so is what is said to be
// wrong.
//
// spec: CTR-7, DOWN-1
func TestEnvironmentsAreTheSame(t *testing.T) {
	r := random(t)
	failed := 0
	for range *count {
		k := speaking(r)
		ours := ourPod(t, k)
		c, mine := &k.Spec.Containers[0], ours.Spec.Containers[0]
		if r.IntN(3) == 0 {
			c, mine = &k.Spec.InitContainers[0], ours.Spec.InitContainers[0]
		}
		theirs := ask[environment](t, "environments", k, c)
		cfg, err := criconfig.Container(ours, mine, criconfig.Instance{}, "", "", criconfig.Facts{Content: content()})
		if errorText(err) != theirs.Wrong {
			t.Fatalf("%v\nKubernetes says %q, Monoplane %v", c, theirs.Wrong, err)
		}
		if err != nil {
			failed++
			continue
		}
		want := theirs.Variables.texts()
		got := map[string]string{}
		for _, v := range cfg.GetEnvs() {
			if v.GetKey() != "HOSTNAME" {
				got[v.GetKey()] = string(v.GetValue())
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v\nKubernetes gives %q\nMonoplane %q", c, want, got)
		}
		for i, words := range [][]string{cfg.GetCommand(), cfg.GetArgs()} {
			for j, want := range theirs.Words[i] {
				if words[j] != string(want) {
					t.Fatalf("%v with %q: %q for Kubernetes, %q for Monoplane", c, got, want, words[j])
				}
			}
		}
	}
	if failed < *count/20 || failed > *count*19/20 {
		t.Errorf("%d of %d were wrong", failed, *count)
	}
}

// Services are announced by the same variables, and in the same order of precedence: where two Services claim a
// variable, the later one has it.
//
// spec: LIFE-8
func TestServicesAreAnnouncedAlike(t *testing.T) {
	r := random(t)
	set, six := 0, 0
	for range *count {
		var theirs []*v1.Service
		var mine []*corev1.Service
		for range r.IntN(4) {
			s := announced(r)
			o, err := ours(s, &corev1.Service{})
			if err != nil {
				t.Fatal(err)
			}
			theirs, mine = append(theirs, s), append(mine, o)
		}
		want := map[string]string{}
		for _, e := range ask[[]v1.EnvVar](t, "announced-services", theirs) {
			want[e.Name] = e.Value
			if strings.Contains(e.Value, "[") {
				six++
			}
		}
		set += len(want)
		p := ourPod(t, minimal())
		cfg, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", criconfig.Facts{
			Content: criconfig.Content{Services: func() ([]*corev1.Service, error) { return mine, nil }}})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range cfg.GetEnvs() {
			if v.GetKey() != "HOSTNAME" {
				got[v.GetKey()] = string(v.GetValue())
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v\nKubernetes gives %q\nMonoplane %q", theirs, want, got)
		}
	}
	if set < *count || six < *count/20 {
		t.Errorf("%d variables in %d rounds, %d with an IPv6 address in brackets", set, *count, six)
	}
}

// announced returns a Service of any kind, as validation lets it be.
func announced(r *rand.Rand) *v1.Service {
	s := &v1.Service{}
	s.Namespace, s.Name = "default", pick(r, []string{"a", "a-port", "my-db", "web", "web-80", "x-1-y", "kube-dns"})
	s.Spec.ClusterIP = pick(r, []string{"10.96.0.1", "10.96.255.9", "fd00::1", "fd00:1:2::ffff", "None", ""})
	for i := range 1 + r.IntN(3) {
		p := v1.ServicePort{Port: int32(1 + r.IntN(65535)), Protocol: pick(r, []v1.Protocol{"TCP", "UDP", "SCTP", ""})}
		if i > 0 || r.IntN(2) == 0 {
			p.Name = pick(r, []string{"http", "https", "dns-tcp", "p-1-q", "80"}) + pick(r, []string{"", "-x"})
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return s
}

// fileVariable is the value of variable KEY in a file, and whether the file is wrong.
type fileVariable struct {
	Value string
	Wrong bool
}

// Files of variables say the same. A file that is missing is the one difference: the documentation of Kubernetes calls
// that optional with its key, its kubelet does not.
//
// spec: CTR-7
func TestFilesOfVariablesSayTheSame(t *testing.T) {
	r := random(t)
	failed, found := 0, 0
	for range *count {
		var b strings.Builder
		for range r.IntN(5) {
			b.WriteString(pick(r, []string{"A='1'", "KEY='two\nlines'", "KEY=''", " KEY='x' # y", "A=''", "# KEY='no'", "\t",
				""}))
			for range r.IntN(3) {
				b.WriteString(pick(r, []string{"A", "KEY", "=", "'", " ", "\n", "\r", "#", "é", "\t"}))
			}
			b.WriteString("\n")
		}
		file := []byte(b.String())
		theirs := ask[fileVariable](t, "files-of-variables", string(file))
		p := ourPod(t, minimal())
		p.Spec.Containers[0].Env = []*corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{
			FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: "env", Key: "KEY", Optional: ptr(true)}}}}
		facts := criconfig.Facts{Content: criconfig.Content{File: func(string, string) ([]byte, error) { return file, nil }}}
		cfg, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", facts)
		got := ""
		for _, v := range cfg.GetEnvs() {
			if v.GetKey() == "V" {
				got = string(v.GetValue())
			}
		}
		if got != theirs.Value || (err != nil) != theirs.Wrong {
			t.Fatalf("%q says %q, wrong %t for Kubernetes, %q, %v for Monoplane", file, theirs.Value, theirs.Wrong, got, err)
		}
		switch {
		case err != nil:
			failed++
		case got != "":
			found++
		}
	}
	if failed < *count/20 || found < *count/20 {
		t.Errorf("of %d, %d were wrong and %d found", *count, failed, found)
	}
}

// Pods refer to the same objects.
//
// spec: OBJ-15
func TestPodsReferToTheSameObjects(t *testing.T) {
	r := random(t)
	for range *count {
		k := speaking(r)
		for range r.IntN(3) {
			k.Spec.ImagePullSecrets = append(k.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: pick(r, []string{"",
				"s3"})})
		}
		if r.IntN(3) == 0 {
			k.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
				EnvFrom: []v1.EnvFromSource{source(r)}, Env: []v1.EnvVar{variable(r)}}}}
		}
		for range r.IntN(4) {
			k.Spec.Volumes = append(k.Spec.Volumes, v1.Volume{Name: "v", VolumeSource: referring(r)})
		}
		theirs := ask[map[string][]string](t, "referred-objects", k)
		spec := ourPod(t, k).GetSpec()
		if r.IntN(2) == 0 { // most of what a pod refers to hides what comes after
			k.Spec.ServiceAccountName, k.Spec.ImagePullSecrets = "", nil
			k.Spec.Containers, k.Spec.InitContainers, k.Spec.EphemeralContainers = minimal().Spec.Containers, nil, nil
		}
		want := ask[string](t, "first-referred-objects", k)
		if got := podrefs.Any(ourPod(t, k).GetSpec()); got != want {
			t.Fatalf("%v\nrefers to %q for Kubernetes, to %q for Monoplane", k.Spec, want, got)
		}
		for kind, got := range map[string][]string{
			"configmaps": slices.Compact(slices.Sorted(podrefs.ConfigMaps(spec))),
			"secrets":    slices.Compact(slices.Sorted(podrefs.Secrets(spec))),
		} {
			if want := theirs[kind]; !slices.Equal(got, want) {
				t.Fatalf("%v\nrefers to the %s %v for Kubernetes, %v for Monoplane", k.Spec, kind, want, got)
			}
		}
	}
}

// referring returns a volume's source that may refer to something.
func referring(r *rand.Rand) v1.VolumeSource {
	name := pick(r, []string{"", "v1", "v2"})
	local := &v1.LocalObjectReference{Name: name}
	return pick(r, []v1.VolumeSource{
		{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: *local}},
		{Secret: &v1.SecretVolumeSource{SecretName: name}},
		{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: *local}},
			{Secret: &v1.SecretProjection{LocalObjectReference: *local}},
			{DownwardAPI: &v1.DownwardAPIProjection{}},
		}}},
		{CSI: &v1.CSIVolumeSource{NodePublishSecretRef: local}}, {CSI: &v1.CSIVolumeSource{}},
		{AzureFile: &v1.AzureFileVolumeSource{SecretName: name}}, {CephFS: &v1.CephFSVolumeSource{SecretRef: local}},
		{Cinder: &v1.CinderVolumeSource{SecretRef: local}}, {FlexVolume: &v1.FlexVolumeSource{SecretRef: local}},
		{ISCSI: &v1.ISCSIVolumeSource{SecretRef: local}}, {RBD: &v1.RBDVolumeSource{SecretRef: local}},
		{ScaleIO: &v1.ScaleIOVolumeSource{SecretRef: local}}, {StorageOS: &v1.StorageOSVolumeSource{}},
		{EmptyDir: &v1.EmptyDirVolumeSource{}}, {HostPath: &v1.HostPathVolumeSource{}},
		{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{pick(r, []v1.VolumeProjection{
			{DownwardAPI: &v1.DownwardAPIProjection{}}, {ServiceAccountToken: &v1.ServiceAccountTokenProjection{}},
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}, {PodCertificate: &v1.PodCertificateProjection{}},
		})}}},
		{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, {Glusterfs: &v1.GlusterfsVolumeSource{}},
		{Ephemeral: &v1.EphemeralVolumeSource{}},
	})
}

// pulled is where an image is pulled from, and with what.
type pulled struct {
	Repository  string
	Credentials []string
}

// Images are pulled with the same credentials, in the same order.
//
// spec: CTR-6
func TestImagesArePulledWithTheSameCredentials(t *testing.T) {
	r := random(t)
	hosts := []string{"docker.io", "index.docker.io", "r.example.com", "a.r.example.com", "r.example.com:5000",
		"localhost",
		"localhost:5000", "*.example.com", "*.r.example.com", "r.*.com", "team", "", "R.example.com"}
	paths := []string{"", "/", "/v1/", "/v2/", "/team", "/team/", "/v1/team", "/team/app", "/x", "/library/x"}
	some := 0
	for range *count {
		var theirs []v1.Secret
		rings := &pullsecret.Keyring{}
		for i := range 1 + r.IntN(3) {
			auths := map[string]map[string]string{}
			taken := map[string]bool{} // entries of a Secret that are for the same are in no order for Kubernetes
			for range r.IntN(4) {
				host, path := pick(r, hosts), pick(r, paths)
				if key := host + strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/v2"), "/"); !taken[key] {
					taken[key] = true
					auths[pick(r, []string{"", "https://", "http://"})+host+path] = credential(r)
				}
			}
			s := v1.Secret{ObjectMeta: meta(fmt.Sprint("s", i))}
			var file any = map[string]any{"auths": auths}
			s.Type = pick(r, []v1.SecretType{v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg})
			key := v1.DockerConfigJsonKey
			if s.Type == v1.SecretTypeDockercfg {
				file, key = auths, v1.DockerConfigKey
			}
			text, err := json.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			s.Data = map[string][]byte{key: text}
			wrong := ask[bool](t, "wrong-pull-secrets", s)
			mine, err := ours(&s, &corev1.Secret{})
			if err == nil {
				err = rings.Add(mine)
			}
			if (err != nil) != wrong {
				t.Fatalf("%s: wrong is %t for Kubernetes, %v for Monoplane", text, wrong, err)
			}
			if !wrong { // one that is wrong spoils all the others in Kubernetes
				theirs = append(theirs, s)
			}
		}
		image := pick(r, []string{"x", "x:1", "team/app", "docker.io/x", "index.docker.io/team/app",
			"r.example.com/team/app:2",
			"a.r.example.com/x", "r.example.com:5000/team", "localhost/x", "localhost:5000/team/app", "r.other.com/x",
			"x@sha256:" + strings.Repeat("0", 64), "r.example.com/x:1@sha256:" + strings.Repeat("0", 64)})
		answer := ask[pulled](t, "pull-secrets", theirs, image)
		if got := pullsecret.Repository(image); got != answer.Repository {
			t.Fatalf("%s is in %q for Kubernetes, in %q for Monoplane", image, answer.Repository, got)
		}
		want, got := answer.Credentials, []string(nil)
		for _, c := range rings.Lookup(image) {
			got = append(got, c.Auth.GetUsername()+":"+c.Auth.GetPassword())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v\n%s is pulled with %q by Kubernetes, with %q by Monoplane", theirs, image, want, got)
		}
		if len(want) > 0 {
			some++
		}
	}
	if some < *count/20 {
		t.Errorf("%d of %d images had credentials", some, *count)
	}
}

// credential returns what a Secret says of a registry.
func credential(r *rand.Rand) map[string]string {
	user := fmt.Sprint("u", r.IntN(1000))
	switch r.IntN(8) {
	case 0:
		return map[string]string{"username": user, "auth": base64.StdEncoding.EncodeToString([]byte(user + "2:p:q"))}
	case 1:
		return map[string]string{"auth": base64.RawStdEncoding.EncodeToString([]byte(user + ":"))}
	case 2:
		if r.IntN(4) == 0 {
			return map[string]string{"auth": pick(r, []string{"?", "bm9uZQ==", " ", "YTpi=", "YTpi\n"})}
		}
		return map[string]string{}
	default:
		return map[string]string{"username": user, "password": "p", "email": "e"}
	}
}
