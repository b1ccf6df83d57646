package criconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/criconfig"
)

// spec: CTR-7
func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "B": "$(A)", "": "empty"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(A)", "$(NONE)": "$(NONE)", "$$(A)": "$(A)",
		"$$$(A)": "$1", "$": "$", "a$": "a$", "$A": "$A", "$(A": "$(A", "$()": "empty", "$$": "$", "$$$$": "$$",
		"$($$": "$($", "$(A$(B$$(A": "$(A$(B$(A", "$(A$$)": "$(A$$)",
	} {
		if got := criconfig.Expand(in, lookup); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func pod(env ...*corev1.EnvVar) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: "ns", Name: "p", Uid: "u", Labels: map[string]string{"l": "1", criconfig.LabelPodUID: "forged"},
			Annotations: map[string]string{"a": "2", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
		},
		Spec: &corev1.PodSpec{NodeName: "n", ServiceAccountName: "sa", Containers: []*corev1.Container{{
			Name: "c", Image: "host", Command: []string{"echo", "$(X)"}, Args: []string{"$(Y)"}, WorkingDir: "/tmp", Env: env,
			TerminationMessagePath: "/dev/termination-log",
		}}},
	}
}

func field(name, path string) *corev1.EnvVar {
	return &corev1.EnvVar{Name: name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

var facts = criconfig.Facts{HostIPs: []string{"1.1.1.1", "::1"}, PodIPs: []string{"2.2.2.2"}, NodeHostname: "machine"}

func container(t *testing.T, p *corev1.Pod) *runtimeapi.ContainerConfig {
	t.Helper()
	c, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{Attempt: 3, Hash: "h",
		Delay: 20 * time.Second}, "ref", "/logs/ns_p_u", facts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spec: CTR-7, DOWN-1
func TestContainer(t *testing.T) {
	c := container(t, pod(
		&corev1.EnvVar{Name: "X", Value: "1"}, &corev1.EnvVar{Name: "Y", Value: "<$(X)$(Z)>"},
		&corev1.EnvVar{Name: "Z", Value: "late"},
		&corev1.EnvVar{Name: "X", Value: "2"},
		field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("UID", "metadata.uid"),
		field("L", "metadata.labels['l']"), field("A", "metadata.annotations['a']"), field("NONE", "metadata.labels['x']"),
		field("NODE", "spec.nodeName"), field("SA", "spec.serviceAccountName"), field("HOSTIP", "status.hostIP"),
		field("HOSTIPS", "status.hostIPs"), field("PODIP", "status.podIP"), field("PODIPS", "status.podIPs"),
	))
	var env []string
	for _, kv := range c.GetEnvs() {
		env = append(env, kv.GetKey()+"="+string(kv.GetValue()))
	}
	want := "HOSTNAME=p X=2 Y=<1$(Z)> Z=late NAME=p NS=ns UID=u L=1 A=2 NONE= NODE=n SA=sa HOSTIP=1.1.1.1 " +
		"HOSTIPS=1.1.1.1,::1 PODIP=2.2.2.2 PODIPS=2.2.2.2"
	if got := strings.Join(env, " "); got != want {
		t.Errorf("environment\n %s\nwant\n %s", got, want)
	}
	if !slices.Equal(c.GetCommand(), []string{"echo", "2"}) || !slices.Equal(c.GetArgs(), []string{"<1$(Z)>"}) ||
		c.GetWorkingDir() != "/tmp" {
		t.Errorf("command: %v", c)
	}
	if c.GetLogPath() != "c/3.log" || c.GetMounts()[0].GetHostPath() != "/logs/ns_p_u/c/3.termination" ||
		c.GetImage().GetImage() != "ref" {
		t.Errorf("paths: %v", c)
	}
	if in := criconfig.ParseInstance(c.GetAnnotations()); in.Attempt != 3 || in.Hash != "h" ||
		in.Delay != 20*time.Second {
		t.Errorf("instance: %+v", in)
	}
	if c.GetLabels()[criconfig.LabelContainerName] != "c" || c.GetLabels()[criconfig.LabelPodUID] != "u" {
		t.Errorf("labels: %v", c.GetLabels())
	}
}

func sandbox(
	t *testing.T, p *corev1.Pod, attempt uint32, logDir string, f criconfig.Facts,
) *runtimeapi.PodSandboxConfig {
	t.Helper()
	s, err := criconfig.Sandbox(p, attempt, logDir, f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSandbox(t *testing.T) {
	p := pod()
	s := sandbox(t, p, 2, "/logs", facts)
	if s.GetLogDirectory() != "/logs/ns_p_u" || s.GetMetadata().GetAttempt() != 2 || s.GetHostname() != "p" {
		t.Errorf("sandbox: %v", s)
	}
	if s.GetLabels()[criconfig.LabelPodUID] != "u" || s.GetLabels()["l"] != "1" {
		t.Errorf("labels: %v", s.GetLabels())
	}
	if len(s.GetAnnotations()) != 1 || len(p.GetMetadata().GetAnnotations()) != 2 {
		t.Errorf("annotations: %v", s.GetAnnotations())
	}
	p.Spec.HostNetwork = true
	// The host name is the node's then: runc refuses to set it.
	if s := sandbox(t, p, 0, "", facts); s.GetHostname() != "" || s.GetLogDirectory() != "" ||
		s.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		t.Errorf("sandbox: %v", s)
	}
	if e := container(t, p).GetEnvs()[0]; e.GetKey() != "HOSTNAME" || string(e.GetValue()) != "machine" {
		t.Errorf("HOSTNAME on the node's network: %v", e)
	}
	p.Spec.HostNetwork, p.Metadata.Name = false, strings.Repeat("a", 62)+".b"
	if s := sandbox(t, p, 0, "", facts); s.GetHostname() != strings.Repeat("a", 62) {
		t.Errorf("host name %q", s.GetHostname())
	}
}

// Whoever shares a runtime tells its own by a label, which a user cannot forge; where systemd manages cgroups the
// parent must be named.
// A runtime can tell a host name that was asked for from the default one.
func TestHostnameFields(t *testing.T) {
	yes := true
	for want, spec := range map[string]*corev1.PodSpec{
		"":                            {},
		"hostname":                    {Hostname: "abc"},
		"subdomain,setHostnameAsFQDN": {Subdomain: "abc", SetHostnameAsFQDN: &yes},
	} {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p"}, Spec: spec}
		if got := sandbox(t, p, 0, "", facts).GetAnnotations()[criconfig.AnnotationHostnameFields]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if len(p.GetMetadata().GetAnnotations()) > 0 {
			t.Error("the pod was changed")
		}
		spec.HostNetwork = true // Then they mean nothing.
		if got := sandbox(t, p, 0, "", facts).GetAnnotations(); len(got) > 0 {
			t.Errorf("on the node's network: %v", got)
		}
	}
}

func TestSharedRuntime(t *testing.T) {
	p, f := pod(), facts
	p.Metadata.Labels[criconfig.LabelOwner] = "forged"
	f.Owner, f.CgroupParent = "me", "some.slice"
	s := sandbox(t, p, 0, "", f)
	if s.GetLabels()[criconfig.LabelOwner] != "me" || s.GetLinux().GetCgroupParent() != "some.slice" {
		t.Errorf("sandbox: %v", s)
	}
	c, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", f)
	if err != nil || c.GetLabels()[criconfig.LabelOwner] != "me" {
		t.Errorf("container: %v, %v", c, err)
	}
	if c := container(t, p); c.GetLabels()[criconfig.LabelOwner] != "" {
		t.Errorf("a container without owner: %v", c)
	}
}

// Without these any container can change settings of the node's kernel: runtimes protect only what they are told.
func TestKernelPathsAreProtected(t *testing.T) {
	sec := container(t, pod()).GetLinux().GetSecurityContext()
	if !slices.Contains(sec.GetReadonlyPaths(), "/proc/sys") || !slices.Contains(sec.GetMaskedPaths(), "/proc/kcore") {
		t.Errorf("security context: %v", sec)
	}
}

// spec: CTR-10
func TestResources(t *testing.T) {
	for _, c := range []struct{ request, limit, memory, want string }{
		{"", "", "", "2 0 0 0"},
		{"500m", "", "", "512 0 0 0"},
		{"", "2", "64Mi", "2048 100000 200000 67108864"},
		{"1m", "1m", "", "2 100000 1000 0"},
		{"garbage", "garbage", "garbage", "2 0 0 0"},
	} {
		p := pod()
		r := &corev1.ResourceRequirements{Limits: map[string]*metav1.Quantity{}, Requests: map[string]*metav1.Quantity{}}
		for m, kv := range map[*map[string]*metav1.Quantity][2]string{&r.Requests: {"cpu", c.request},
			&r.Limits: {"cpu", c.limit}} {
			if kv[1] != "" {
				(*m)[kv[0]] = &metav1.Quantity{String_: kv[1]}
			}
		}
		if c.memory != "" {
			r.Limits["memory"] = &metav1.Quantity{String_: c.memory}
		}
		p.Spec.Containers[0].Resources = r
		got := container(t, p).GetLinux().GetResources()
		text := fmt.Sprint(got.GetCpuShares(), got.GetCpuPeriod(), got.GetCpuQuota(), got.GetMemoryLimitInBytes())
		if text != c.want {
			t.Errorf("%+v gives %s", c, text)
		}
	}
}

// A file's name has 255 bytes at most: longer names of directories are cut and carry a hash, all others are as they
// were.
func TestPodDir(t *testing.T) {
	uid := "0a9f9d4e-5a3f-4a57-8a51-0123456789ab"
	ns := strings.Repeat("n", 63)
	for _, n := range []int{1, 100, 154, 155, 200, 253} {
		name := strings.Repeat("p", n-1) + "x"
		dir := criconfig.PodDir(ns, name, uid)
		if len(dir) > 255 {
			t.Errorf("a name of %d bytes gives %d", n, len(dir))
		}
		if plain := ns + "_" + name + "_" + uid; len(plain) <= 255 && dir != plain {
			t.Errorf("the directory %s is now called %s", plain, dir)
		}
		if parts := strings.Split(dir, "_"); len(parts) != 3 || parts[0] != ns || parts[2] != uid {
			t.Errorf("log collectors cannot read %s", dir)
		}
		if other := criconfig.PodDir(ns, strings.Repeat("p", n-1)+"y", uid); other == dir {
			t.Errorf("two pods share %s", dir)
		}
	}
	if dir := criconfig.PodDir(strings.Repeat("n", 300), "p", uid); len(dir) > 255 {
		t.Errorf("%d bytes", len(dir))
	}
	// The longest container name, attempt and time of rotation.
	name := criconfig.LogName(strings.Repeat("c", 63), 1<<32-1) + ".20060102-150405.000000000"
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 255 {
			t.Errorf("%s has %d bytes", part, len(part))
		}
	}
}

// What a pod needs in all, and its overhead, goes into its sandbox. spec: LIFE-8
func TestSandboxKnowsItsSize(t *testing.T) {
	list := func(cpu, memory string) map[string]*metav1.Quantity {
		return map[string]*metav1.Quantity{"cpu": {String_: cpu}, "memory": {String_: memory}}
	}
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "default", Uid: "u"}, Spec: &corev1.PodSpec{
		Containers: []*corev1.Container{
			{Resources: &corev1.ResourceRequirements{Requests: list("250m", "1Mi"), Limits: list("1", "64Mi")}},
			{Resources: &corev1.ResourceRequirements{Requests: list("250m", "1Mi"), Limits: list("1", "64Mi")}},
		},
	}}
	if linux := sandbox(t, p, 0, "", criconfig.Facts{}).GetLinux(); linux.Overhead != nil {
		t.Errorf("without overhead: %v", linux)
	}
	p.Spec.Overhead = list("500m", "16Mi")
	linux := sandbox(t, p, 0, "", criconfig.Facts{}).GetLinux()
	for name, x := range map[string]struct {
		got                   *runtimeapi.LinuxContainerResources
		shares, quota, memory int64
	}{"containers": {linux.GetResources(), 512, 200000, 128 << 20}, "overhead": {linux.GetOverhead(), 512, 50000,
		16 << 20}} {
		if g := x.got; g.GetCpuShares() != x.shares || g.GetCpuQuota() != x.quota || g.GetCpuPeriod() != 100000 ||
			g.GetMemoryLimitInBytes() != x.memory {
			t.Errorf("%s: %v", name, g)
		}
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("2", "1Gi"), Limits: list("4", "2Gi")}
	if g := sandbox(t, p, 0, "", criconfig.Facts{}).GetLinux().GetResources(); g.GetCpuShares() != 2048 ||
		g.GetCpuQuota() != 400000 || g.GetMemoryLimitInBytes() != 2<<30 {
		t.Errorf("for the pod as a whole: %v", g)
	}
}
