//go:build rootonly

package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/test/containerd"
)

// has fails the test unless text has each of the lines.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains("\n"+text, "\n"+want+"\n") {
			t.Errorf("the line %q is missing in\n%s", want, text)
		}
	}
}

// The processes of a container are who its security context says that they are, and can do no more than it says.
// spec: SEC-1
func (c onContainerd) security(t *testing.T) {
	p := boxed("security", `id; exec 2>&1; echo x >/x || echo cannot; cd /proc/sys/net/ipv4
		echo x >ip_unprivileged_port_start; cat ip_unprivileged_port_start
		while read k v; do echo $k $v; done </proc/self/status`)
	yes, no := true, false
	user, group, owner := int64(1234), int64(2345), int64(3456)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: &user, RunAsNonRoot: &yes, FSGroup: &owner, SupplementalGroups: []int64{4567},
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "77"}},
	}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsGroup: &group, ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	c.create(t, p)
	c.untilPhase(t, p.Name, corev1.PodSucceeded)
	has(t, c.logs(t, p.Name), "uid=1234 gid=2345 groups=2345,3456,4567", "cannot", "77", "NoNewPrivs: 1",
		"CapBnd: 0000000000000000", "CapEff: 0000000000000000")
}

// spec: SEC-1, CTR-4
func (c onContainerd) noRoot(t *testing.T) {
	yes := true
	for name, image := range map[string]string{"noroot": containerd.BoxImage, "nouser": containerd.UserImage} {
		p := boxed(name, `id`)
		p.Spec.Containers[0].Image = image
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: &yes}
		c.create(t, p)
	}
	c.until(t, "noroot", "CreateContainerConfigError", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CreateContainerConfigError" &&
			strings.Contains(s[0].State.Waiting.Message, "container has runAsNonRoot and image will run as root")
	})
	c.untilPhase(t, "nouser", corev1.PodSucceeded)
	if got := c.logs(t, "nouser"); !strings.HasPrefix(got, "uid=1000 ") {
		t.Errorf("it printed %q", got)
	}
}

// A container knows its pod, and whom else the pod names, and asks the name servers of the pod.
// spec: LIFE-8, NET-1
func (c onContainerd) names(t *testing.T) {
	p := boxed("names", `hostname; echo $HOSTNAME; cat /etc/hosts /etc/resolv.conf
		echo more >>/etc/hosts && echo written`)
	yes, two := true, "2"
	p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "host-1", "sub", &yes
	p.Spec.HostAliases = []corev1.HostAlias{{IP: "198.51.100.77", Hostnames: []string{"alias", "other.example.com"}}}
	p.Spec.DNSPolicy = corev1.DNSNone
	p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"198.51.100.53"}, Searches: []string{"example.com"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &two}}}
	c.create(t, p)
	c.untilPhase(t, p.Name, corev1.PodSucceeded)
	got := c.logs(t, p.Name)
	has(t, got, "127.0.0.1\tlocalhost", "198.51.100.77\talias\tother.example.com", "nameserver 198.51.100.53",
		"search example.com", "options ndots:2", "written")
	const qualified = "host-1.sub.default.svc.cluster.local"
	if !strings.HasPrefix(got, qualified+"\n"+qualified+"\n") || !strings.Contains(got, "\t"+qualified+"\thost-1\n") {
		t.Errorf("it printed %q", got)
	}
}

// The containers of a pod see each other's processes if the pod says so. spec: LIFE-8
func (c onContainerd) sharedProcesses(t *testing.T) {
	for name, shared := range map[string]bool{"shared": true, "apart": false} {
		p := boxed(name, `for n in 1 2 3 4 5 6 7 8 9; do for p in /proc/[0-9]*/cmdline; do
			case "$(cat $p 2>/dev/null)" in *LOOKFORME*) [ $p != /proc/$$/cmdline ] && echo found && exit;; esac
			done; sleep 0.05; done; echo alone`)
		other := boxed("", `trap 'exit 0' TERM; while :; do sleep 0.05; done; : "LOOK"FORME`).Spec.Containers[0]
		other.Name, other.Args = "other", append(other.Args, "LOOKFORME")
		p.Spec.ShareProcessNamespace = &shared
		p.Spec.InitContainers = []corev1.Container{other}
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers[0].RestartPolicy = &always
		c.create(t, p)
		c.untilPhase(t, name, corev1.PodSucceeded)
		if got, want := c.logs(t, name), map[bool]string{true: "found\n", false: "alone\n"}[shared]; got != want {
			t.Errorf("%s: it printed %q, want %q", name, got, want)
		}
	}
}

// The containers of a pod have its limits together, each of them alone too if it has none of its own, and its cgroup
// goes with it. spec: INIT-8, QOS-1, QOS-3
func (c onContainerd) wholePod(t *testing.T) {
	p := boxed("whole", politeBox)
	other := boxed("", politeBox).Spec.Containers[0]
	other.Name = "other"
	other.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	p.Spec.Containers = append(p.Spec.Containers, other)
	all := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"),
		corev1.ResourceCPU: resource.MustParse("1")}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: all, Limits: all}
	p = c.run(t, p)
	if p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("the class is %s", p.Status.QOSClass)
	}
	memory, cpu := "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"
	files := map[string]string{"memory.limit_in_bytes": "67108864", "cpu.cfs_quota_us": "100000", "cpu.shares": "1024"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		memory, cpu = "/sys/fs/cgroup", "/sys/fs/cgroup"
		files = map[string]string{"memory.max": "67108864", "cpu.max": "100000 100000"}
	}
	group := "monoplane/pod" + string(p.UID)
	for file, want := range files {
		dir := cpu
		if strings.HasPrefix(file, "memory") {
			dir = memory
		}
		text, err := os.ReadFile(filepath.Join(dir, group, file))
		if got := strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %s", file, got, err, want)
		}
	}
	// Containers are in the pod's group: its own limits are theirs.
	limits := map[string]bool{}
	for file := range files {
		if !strings.HasPrefix(file, "memory") {
			continue
		}
		below, err := filepath.Glob(filepath.Join(memory, group, "*", file))
		if err != nil || len(below) < 2 {
			t.Errorf("groups of containers: %v, %v", below, err)
		}
		for _, path := range below {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			limits[strings.TrimSpace(string(text))] = true
		}
	}
	if !limits["67108864"] || !limits["33554432"] {
		t.Errorf("limits of containers: %v", limits)
	}
	c.delete(t, p.Name, -1)
	c.untilGone(t, p)
	for _, dir := range []string{memory, cpu} {
		if _, err := os.Stat(filepath.Join(dir, group)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the pod is gone, and its cgroup: %v", err)
		}
	}
	if _, err := c.Get(t.Context(), p.Name, metav1.GetOptions{}); err == nil {
		t.Error("the pod is still there")
	}
}
