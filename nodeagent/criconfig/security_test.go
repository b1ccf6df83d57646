package criconfig_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/criconfig"
)

// secured returns the security context of a container whose pod and itself ask for the given.
func secured(
	t *testing.T, pc *corev1.PodSecurityContext, c *corev1.SecurityContext, f criconfig.Facts,
) *runtimeapi.LinuxContainerSecurityContext {
	t.Helper()
	p := pod()
	p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = pc, c
	got, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", f)
	if err != nil {
		t.Fatal(err)
	}
	return got.GetLinux().GetSecurityContext()
}

// spec: SEC-1
func TestWhatAContainerSaysWinsOverItsPod(t *testing.T) {
	of := func(n int64) *corev1.PodSecurityContext {
		return &corev1.PodSecurityContext{
			RunAsUser: proto.Int64(n), RunAsGroup: proto.Int64(n + 1), FsGroup: proto.Int64(n + 2),
			SupplementalGroups: []int64{n + 3, n + 4}, SupplementalGroupsPolicy: proto.String("Strict"),
			SeLinuxOptions:  &corev1.SELinuxOptions{Level: "pod"},
			SeccompProfile:  &corev1.SeccompProfile{Type: "RuntimeDefault"},
			AppArmorProfile: &corev1.AppArmorProfile{Type: "RuntimeDefault"},
		}
	}
	f := criconfig.Facts{Node: &criconfig.Node{SeccompDir: "/profiles"}}
	got := secured(t, of(1000), nil, f)
	if got.GetRunAsUser().GetValue() != 1000 || got.GetRunAsGroup().GetValue() != 1001 ||
		!slices.Equal(got.GetSupplementalGroups(), []int64{1002, 1003, 1004}) ||
		got.GetSupplementalGroupsPolicy() != runtimeapi.SupplementalGroupsPolicy_Strict ||
		got.GetSelinuxOptions().GetLevel() != "pod" ||
		got.GetSeccomp().GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault ||
		got.GetApparmor().GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("of the pod: %v", got)
	}
	got = secured(t, of(1000), &corev1.SecurityContext{
		RunAsUser: proto.Int64(0), RunAsGroup: proto.Int64(5), SeLinuxOptions: &corev1.SELinuxOptions{Type: "own"},
		SeccompProfile:  &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: proto.String("audit/one.json")},
		AppArmorProfile: &corev1.AppArmorProfile{Type: "Localhost", LocalhostProfile: proto.String("mine")},
		Capabilities:    &corev1.Capabilities{Add: []string{"NET_ADMIN"}, Drop: []string{"ALL"}},
	}, f)
	if got.GetRunAsUser() == nil || got.GetRunAsUser().GetValue() != 0 || got.GetRunAsGroup().GetValue() != 5 ||
		got.GetSelinuxOptions().GetLevel() != "" || got.GetSelinuxOptions().GetType() != "own" ||
		got.GetSeccomp().GetLocalhostRef() != "/profiles/audit/one.json" ||
		got.GetApparmor().GetLocalhostRef() != "mine" ||
		!slices.Equal(got.GetCapabilities().GetAddCapabilities(), []string{"NET_ADMIN"}) ||
		!slices.Equal(got.GetCapabilities().GetDropCapabilities(), []string{"ALL"}) {
		t.Errorf("of the container: %v", got)
	}
}

// spec: SEC-1
func TestRestrictionsOfAContainer(t *testing.T) {
	const throttle = "/sys/devices/system/cpu/cpu0/thermal_throttle"
	machine := criconfig.Facts{Node: &criconfig.Node{MaskedPaths: []string{throttle}}}
	got := secured(t, nil, nil, machine)
	if got.GetNoNewPrivs() || got.GetPrivileged() || got.GetReadonlyRootfs() || got.GetRunAsUser() != nil ||
		got.GetSeccomp().GetProfileType() != runtimeapi.SecurityProfile_Unconfined || got.GetApparmor() != nil ||
		got.GetSelinuxOptions() != nil || got.GetCapabilities() != nil {
		t.Errorf("without restrictions: %v", got)
	}
	if !slices.Contains(got.GetMaskedPaths(), throttle) ||
		!slices.Contains(got.GetMaskedPaths(), "/proc/kcore") {
		t.Errorf("masked: %v", got.GetMaskedPaths())
	}
	got = secured(t, nil, &corev1.SecurityContext{
		AllowPrivilegeEscalation: proto.Bool(false), ReadOnlyRootFilesystem: proto.Bool(true),
		Privileged: proto.Bool(false), ProcMount: proto.String("Unmasked"),
		SeccompProfile: &corev1.SeccompProfile{Type: "Unconfined"},
	}, machine)
	if !got.GetNoNewPrivs() || !got.GetReadonlyRootfs() || len(got.GetMaskedPaths())+len(got.GetReadonlyPaths()) > 0 {
		t.Errorf("with restrictions: %v", got)
	}
	if got = secured(t, nil, &corev1.SecurityContext{
		AllowPrivilegeEscalation: proto.Bool(true), Privileged: proto.Bool(true),
	}, machine); got.GetNoNewPrivs() || !got.GetPrivileged() {
		t.Errorf("with all privileges: %v", got)
	}
}

// A node may give containers that name no seccomp profile the runtime's; runtimes ignore it for privileged ones. What
// a pod or a container names counts as ever. spec: SEC-1
func TestSeccompDefault(t *testing.T) {
	const unconfined, runtimes, file = runtimeapi.SecurityProfile_Unconfined,
		runtimeapi.SecurityProfile_RuntimeDefault, runtimeapi.SecurityProfile_Localhost
	of := func(kind string) *corev1.SeccompProfile { return &corev1.SeccompProfile{Type: kind} }
	local := &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: proto.String("x")}
	for name, c := range map[string]struct {
		pod, own      *corev1.SeccompProfile
		privileged    bool
		without, with runtimeapi.SecurityProfile_ProfileType
	}{
		"none":                   {without: unconfined, with: runtimes},
		"privileged":             {privileged: true, without: unconfined, with: runtimes},
		"the pod's":              {pod: of("Unconfined"), without: unconfined, with: unconfined},
		"the container's":        {pod: local, own: of("Unconfined"), without: unconfined, with: unconfined},
		"the runtime's":          {own: of("RuntimeDefault"), without: runtimes, with: runtimes},
		"one of the node's":      {pod: local, without: file, with: file},
		"a profile without type": {own: of(""), without: unconfined, with: unconfined},
	} {
		for onNode, want := range map[bool]runtimeapi.SecurityProfile_ProfileType{false: c.without, true: c.with} {
			got := secured(t, &corev1.PodSecurityContext{SeccompProfile: c.pod},
				&corev1.SecurityContext{SeccompProfile: c.own, Privileged: &c.privileged},
				criconfig.Facts{Node: &criconfig.Node{SeccompDefault: onNode}}).GetSeccomp().GetProfileType()
			if got != want {
				t.Errorf("%s, by default on the node %t: %v, want %v", name, onNode, got, want)
			}
		}
	}
}

// The annotation that came before the field counts where there is no field of the container's own.
func TestAppArmorAnnotation(t *testing.T) {
	for value, want := range map[string]string{
		"runtime/default": "RuntimeDefault", "unconfined": "Unconfined", "localhost/x": "Localhost x",
		"nonsense": "Localhost pod",
	} {
		p := pod()
		p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "Localhost",
			LocalhostProfile: proto.String("pod")}}
		p.Metadata.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = value
		profile := container(t, p).GetLinux().GetSecurityContext().GetApparmor()
		got := strings.TrimSpace(profile.GetProfileType().String() + " " + profile.GetLocalhostRef())
		if got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

// The user of the image is passed on with a group that is asked for, unless somebody asks for another one; where root
// is forbidden, the container is refused in the words of Kubernetes. spec: SEC-1
func TestUserOfTheImage(t *testing.T) {
	number := func(n int64) criconfig.ImageUser { return criconfig.ImageUser{UID: &n} }
	for _, c := range []struct {
		name       string
		asked      *int64
		nonRoot    bool
		image      criconfig.ImageUser
		want, fail string
	}{
		{name: "nobody says"},
		{name: "the image", image: number(7), want: "7"},
		{name: "the image by name", image: criconfig.ImageUser{Name: "web"}, want: "web"},
		{name: "asked for", asked: proto.Int64(8), image: number(7), want: "8"},
		{name: "asked for, not by name", asked: proto.Int64(8), image: criconfig.ImageUser{Name: "web"}, want: "8"},
		{name: "not root", nonRoot: true, image: number(7), want: "7"},
		{name: "not root, asked for", nonRoot: true, asked: proto.Int64(8), image: number(0), want: "8"},
		{name: "root", nonRoot: true, image: number(0), fail: "container has runAsNonRoot and image will run as root"},
		{name: "root by silence", nonRoot: true, fail: "container has runAsNonRoot and image will run as root"},
		{name: "root, asked for", nonRoot: true, asked: proto.Int64(0), image: number(7),
			fail: "container's runAsUser breaks non-root policy"},
		{name: "somebody", nonRoot: true, image: criconfig.ImageUser{Name: "web"},
			fail: "image has non-numeric user (web), cannot verify user is non-root"},
		{name: "too large", nonRoot: true, image: number(math.MaxInt32 + 1), fail: "invalid user id (2147483648)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pod()
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &c.nonRoot}
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: c.asked,
				RunAsGroup: proto.Int64(5)}
			got, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "",
				criconfig.Facts{ImageUser: c.image})
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) ||
					!strings.HasSuffix(err.Error(), ` (pod: "p_ns(u)", container: c)`) {
					t.Fatalf("error %v, want %s", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s := got.GetLinux().GetSecurityContext()
			user := s.GetRunAsUsername()
			if s.GetRunAsUser() != nil {
				user += s.GetRunAsUser().String()
				user = strings.TrimPrefix(user, "value:")
			}
			if user != c.want {
				t.Errorf("runs as %q, want %q", user, c.want)
			}
		})
	}
}

// An image's user may come with a group, which is theirs to know.
func TestUserOfTheImageIsLeftToTheRuntime(t *testing.T) {
	uid := int64(7)
	for _, user := range []criconfig.ImageUser{{UID: &uid}, {Name: "web"}} {
		if got := secured(t, nil, nil, criconfig.Facts{ImageUser: user}); got.GetRunAsUser() != nil ||
			got.GetRunAsUsername() != "" {
			t.Errorf("%+v: %v", user, got)
		}
	}
}

func TestRefusedProfiles(t *testing.T) {
	for name, s := range map[string]*corev1.SecurityContext{
		"seccompProfile.localhostProfile \"../../etc/passwd\"": {SeccompProfile: &corev1.SeccompProfile{
			Type: "Localhost", LocalhostProfile: proto.String("../../etc/passwd")}},
		"seccompProfile.localhostProfile \"\"": {SeccompProfile: &corev1.SeccompProfile{Type: "Localhost"}},
		"appArmorProfile.localhostProfile":     {AppArmorProfile: &corev1.AppArmorProfile{Type: "Localhost"}},
		"appArmorProfile.type \"Other\"":       {AppArmorProfile: &corev1.AppArmorProfile{Type: "Other"}},
	} {
		p := pod()
		p.Spec.Containers[0].SecurityContext = s
		_, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", facts)
		if err == nil || !strings.Contains(err.Error(), `container "c": `+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := pod()
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: proto.String("Other")}
	if _, err := criconfig.Sandbox(p, 0, "", facts); err == nil ||
		!strings.Contains(err.Error(), "supplementalGroupsPolicy: Other") {
		t.Errorf("policy of groups: %v", err)
	}
}

// spec: SEC-1, LIFE-8
func TestSandboxSecurity(t *testing.T) {
	p := pod()
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: proto.Int64(1), RunAsGroup: proto.Int64(2), FsGroup: proto.Int64(3), SupplementalGroups: []int64{4},
		Sysctls: []*corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "1"}, {Name: "a", Value: "1"},
			{Name: "a", Value: "2"}, {Name: "net/ipv4/conf/eth0.5/forwarding", Value: "3"}},
	}
	linux := sandbox(t, p, 0, "", facts).GetLinux()
	s := linux.GetSecurityContext()
	if s.GetRunAsUser().GetValue() != 1 || s.GetRunAsGroup().GetValue() != 2 ||
		!slices.Equal(s.GetSupplementalGroups(), []int64{3, 4}) || s.GetPrivileged() ||
		s.GetSeccomp().GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("sandbox: %v", s)
	}
	if c := linux.GetSysctls(); len(c) != 3 || c["a"] != "2" || c["net.ipv4.ip_unprivileged_port_start"] != "1" ||
		c["net.ipv4.conf.eth0/5.forwarding"] != "3" {
		t.Errorf("sysctls: %v", c)
	}
	yes := &corev1.SecurityContext{Privileged: proto.Bool(true)}
	for name, spec := range map[string]*corev1.PodSpec{
		"init": {InitContainers: []*corev1.Container{{SecurityContext: yes}}},
		"app":  {Containers: []*corev1.Container{{}, {SecurityContext: yes}}},
		"ephemeral": {EphemeralContainers: []*corev1.EphemeralContainer{{
			EphemeralContainerCommon: &corev1.EphemeralContainerCommon{SecurityContext: yes}}}},
	} {
		p.Spec = spec
		if !sandbox(t, p, 0, "", facts).GetLinux().GetSecurityContext().GetPrivileged() {
			t.Errorf("%s container has all privileges, its sandbox has not", name)
		}
	}
}

// An ephemeral container sees the processes of the one that it names, unless it sees them anyway.
func TestTargetOfAnEphemeralContainer(t *testing.T) {
	f := facts
	f.TargetID = "id"
	p := pod()
	for _, c := range []struct {
		shared, host bool
		want         runtimeapi.NamespaceMode
		target       string
	}{
		{want: runtimeapi.NamespaceMode_TARGET, target: "id"},
		{shared: true, want: runtimeapi.NamespaceMode_POD},
		{host: true, want: runtimeapi.NamespaceMode_NODE},
	} {
		p.Spec.ShareProcessNamespace, p.Spec.HostPID = &c.shared, c.host
		got, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", f)
		if err != nil {
			t.Fatal(err)
		}
		o := got.GetLinux().GetSecurityContext().GetNamespaceOptions()
		if o.GetPid() != c.want || o.GetTargetId() != c.target {
			t.Errorf("%+v: %v", c, o)
		}
	}
}

// spec: CTR-7, TERM-1
func TestInputTerminalAndStopSignal(t *testing.T) {
	p := pod()
	p.Spec.Containers[0].Stdin, p.Spec.Containers[0].StdinOnce, p.Spec.Containers[0].Tty = true, true, true
	if c := container(t, p); !c.GetStdin() || !c.GetStdinOnce() || !c.GetTty() ||
		c.GetStopSignal() != runtimeapi.Signal_RUNTIME_DEFAULT {
		t.Errorf("container: %v", c)
	}
	for name, want := range map[string]runtimeapi.Signal{
		"SIGUSR1": runtimeapi.Signal_SIGUSR1, "SIGRTMIN+3": runtimeapi.Signal_SIGRTMINPLUS3,
		"SIGRTMAX-14": runtimeapi.Signal_SIGRTMAXMINUS14, "SIGNONE": runtimeapi.Signal_RUNTIME_DEFAULT,
	} {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &name}
		if got := container(t, p).GetStopSignal(); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
