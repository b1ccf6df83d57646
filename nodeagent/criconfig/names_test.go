package criconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/resolvconf"
)

var inCluster = criconfig.Facts{
	PodIPs: []string{"2.2.2.2", "2::2"}, NodeHostname: "machine", Node: &criconfig.Node{ClusterDomain: "cluster.local"},
}

// spec: LIFE-8, NET-1
func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	for _, c := range []struct {
		name, want string
		spec       *corev1.PodSpec
	}{
		{"plain", "p", &corev1.PodSpec{}},
		{"hostname", "h", &corev1.PodSpec{Hostname: "h"}},
		{"a long one", strings.Repeat("a", 62), &corev1.PodSpec{HostnameOverride: &long}},
		{"override", "o.x", &corev1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: proto.String("o.x")}},
		{"subdomain", "h", &corev1.PodSpec{Hostname: "h", Subdomain: "s"}},
		{"qualified", "h.s.ns.svc.cluster.local", &corev1.PodSpec{Hostname: "h", Subdomain: "s",
			SetHostnameAsFQDN: proto.Bool(true)}},
		{"qualified without a domain", "h", &corev1.PodSpec{Hostname: "h", SetHostnameAsFQDN: proto.Bool(true)}},
		{"on the node's network", "", &corev1.PodSpec{Hostname: "h", HostNetwork: true}},
	} {
		p := pod()
		c.spec.Containers = p.Spec.Containers
		p.Spec = c.spec
		if got := sandbox(t, p, 0, "", inCluster).GetHostname(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		cfg, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", inCluster)
		if c.want == "" {
			c.want = "machine"
		}
		if err != nil || string(cfg.GetEnvs()[0].GetValue()) != c.want {
			t.Errorf("%s: HOSTNAME: %v, %v", c.name, cfg.GetEnvs(), err)
		}
	}
}

// The kernel takes 64 characters.
func TestLongestHostname(t *testing.T) {
	p := pod()
	p.Spec.SetHostnameAsFQDN = proto.Bool(true)
	for length, fits := range map[int]bool{64: true, 65: false} {
		p.Spec.Subdomain = strings.Repeat("s", length-len("p..ns.svc.cluster.local"))
		_, err := criconfig.Sandbox(p, 0, "", inCluster)
		if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "65 characters requested") {
			t.Errorf("%d: %v", length, err)
		}
	}
}

// spec: LIFE-8
func TestHosts(t *testing.T) {
	p := pod()
	p.Spec.HostAliases = []*corev1.HostAlias{{Ip: "10.0.0.1", Hostnames: []string{"a", "b.c"}}, {Ip: "::5"}}
	text := string(criconfig.Hosts(p, inCluster, nil))
	if !strings.HasPrefix(text, "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n") ||
		!strings.Contains(text, "\n\n# Entries added by HostAliases.\n10.0.0.1\t") {
		t.Error(text)
	}
	if !strings.Contains(text, "\n127.0.0.1\tlocalhost\n") || !strings.Contains(text, "\n2.2.2.2\tp\n2::2\tp\n") ||
		!strings.HasSuffix(text, "\n10.0.0.1\ta\tb.c\n::5\t\n") {
		t.Error(text)
	}
	p.Spec.Subdomain, p.Spec.HostAliases = "s", nil
	if text := string(criconfig.Hosts(p, inCluster, nil)); !strings.HasSuffix(text,
		"\n2.2.2.2\tp.s.ns.svc.cluster.local\tp\n2::2\tp.s.ns.svc.cluster.local\tp\n") {
		t.Error(text)
	}
	p.Spec.HostNetwork = true
	if text := string(criconfig.Hosts(p, inCluster, []byte("1.1.1.1 node"))); !strings.HasPrefix(text,
		"# Kubernetes-managed hosts file (host network).\n1.1.1.1") || strings.Contains(text, "localhost") ||
		!strings.HasSuffix(text, "\n1.1.1.1 node\n") {
		t.Error(text)
	}
}

// A container that has something of its own there keeps it.
func TestHostsAreMounted(t *testing.T) {
	f := inCluster
	f.HostsFile = "/pods/u/etc-hosts"
	p := pod()
	for own, want := range map[string]string{"/data": "/pods/u/etc-hosts", "/etc/hosts": ""} {
		p.Spec.Containers[0].VolumeMounts = []*corev1.VolumeMount{{Name: "v", MountPath: own}}
		cfg, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", f)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range cfg.GetMounts() {
			if m.GetContainerPath() == "/etc/hosts" {
				got = m.GetHostPath()
			}
		}
		if got != want {
			t.Errorf("with a mount at %s: %q", own, got)
		}
	}
}

// spec: LIFE-8
func TestDNS(t *testing.T) {
	f := criconfig.Facts{Resolver: resolvconf.Config{
		Servers: []string{"1.1.1.1"}, Searches: []string{"node"}, Options: []string{"ndots:1", "rotate"},
	}}
	own := &corev1.PodDNSConfig{
		Nameservers: []string{"2.2.2.2", "1.1.1.1"}, Searches: []string{"pod", "node"},
		Options: []*corev1.PodDNSConfigOption{{Name: "ndots", Value: proto.String("3")}, {Name: "edns0"}},
	}
	for _, c := range []struct {
		name, policy string
		config       *corev1.PodDNSConfig
		want         string
	}{
		{"the node's", "Default", nil, "[1.1.1.1] [node] [ndots:1 rotate]"},
		{"no cluster DNS", "ClusterFirst", nil, "[1.1.1.1] [node] [ndots:1 rotate]"},
		{"added", "ClusterFirst", own, "[1.1.1.1 2.2.2.2] [node pod] [ndots:3 rotate edns0]"},
		{"none of the node's", "None", own, "[2.2.2.2 1.1.1.1] [pod node] [ndots:3 edns0]"},
	} {
		p := pod()
		p.Spec.DnsPolicy, p.Spec.DnsConfig = c.policy, c.config
		got, left := criconfig.DNS(p, f)
		text := strings.Join([]string{"[" + strings.Join(got.GetServers(), " ") + "]",
			"[" + strings.Join(got.GetSearches(), " ") + "]", "[" + strings.Join(got.GetOptions(), " ") + "]"}, " ")
		if text != c.want || len(left) > 0 {
			t.Errorf("%s: %s, %q, want %s", c.name, text, left, c.want)
		}
		if sent := sandbox(t, p, 0, "", f).GetDnsConfig(); sent.String() != got.String() {
			t.Errorf("%s: the runtime is told %v", c.name, sent)
		}
	}
	if f.Resolver.Options[0] != "ndots:1" {
		t.Error("the node's options were changed")
	}
}

// Where there is a cluster DNS pods are told that, unless they choose otherwise or have the node's network.
// spec: LIFE-8
func TestClusterDNS(t *testing.T) {
	f := criconfig.Facts{
		Resolver: resolvconf.Config{Servers: []string{"1.1.1.1"}, Searches: []string{"node"}, Options: []string{"rotate"}},
		Node:     &criconfig.Node{ClusterDomain: "example.test", ClusterDNS: []string{"10.96.0.10"}},
	}
	const node, none = "[1.1.1.1] [node] [rotate]", "[] [] []"
	const cluster = "[10.96.0.10] [ns.svc.example.test svc.example.test example.test node] [ndots:5]"
	for _, c := range []struct {
		policy      string
		hostNetwork bool
		want        string
		without     bool // The machine reaches no Services.
		told        int
	}{
		{"ClusterFirst", false, cluster, false, 0}, {"ClusterFirst", true, node, false, 0},
		{"ClusterFirstWithHostNet", true, cluster, false, 0}, {"ClusterFirstWithHostNet", true, node, true, 1},
		{"ClusterFirst", false, cluster, true, 0}, {"ClusterFirstWithHostNet", false, cluster, true, 0},
		{"ClusterFirst", true, node, true, 0}, {"Default", false, node, false, 0}, {"None", false, none, false, 0},
	} {
		p := pod()
		p.Metadata.Namespace, p.Spec.DnsPolicy, p.Spec.HostNetwork = "ns", c.policy, c.hostNetwork
		f.WithoutServices = c.without
		got, left := criconfig.DNS(p, f)
		if len(left) != c.told {
			t.Errorf("%s, host network %v, without Services %v: told %q", c.policy, c.hostNetwork, c.without, left)
		}
		if text := fmt.Sprint(got.GetServers(), got.GetSearches(), got.GetOptions()); text != c.want {
			t.Errorf("%s, host network %v: %s, want %s", c.policy, c.hostNetwork, text, c.want)
		}
	}
}

// Resolvers take only so much; what is left out is told.
func TestDNSLimits(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = strings.Repeat(string(rune('a'+i%26)), 1+i/26)
	}
	big := []string{strings.Repeat("x", 253), strings.Repeat("y", 254), "z"}
	for range 9 {
		big = append(big, strings.Repeat("x", 240)+string(rune('a'+len(big))))
	}
	for name, c := range map[string]struct {
		servers, searches     []string
		wantServers, wantLast string
		told                  int
	}{
		"fits":          {[]string{"1", "2", "3"}, many[:32], "1 2 3", many[31], 0},
		"too many":      {[]string{"1", "2", "3", "4"}, many, "1 2 3", many[31], 2},
		"too long":      {nil, big[:3], "", "z", 1},
		"long together": {nil, big, "", big[9], 1},
	} {
		p := pod()
		p.Spec.DnsPolicy, p.Spec.DnsConfig = "None", &corev1.PodDNSConfig{Nameservers: c.servers, Searches: c.searches}
		got, left := criconfig.DNS(p, criconfig.Facts{})
		if s := strings.Join(got.GetServers(), " "); s != c.wantServers {
			t.Errorf("%s: servers %s", name, s)
		}
		if s := got.GetSearches(); s[len(s)-1] != c.wantLast || slices.Contains(s, big[1]) ||
			len(strings.Join(s, " ")) > 2048 {
			t.Errorf("%s: %d domains, the last is %s", name, len(s), s[len(s)-1])
		}
		if len(left) != c.told {
			t.Errorf("%s: told %q", name, left)
		}
	}
}

func TestPorts(t *testing.T) {
	p := pod()
	p.Spec.Containers[0].Ports = []*corev1.ContainerPort{
		{ContainerPort: 80, HostPort: 8080}, {ContainerPort: 80, HostPort: 8080},
		{ContainerPort: 80, HostPort: 8080, Protocol: "UDP"}, {ContainerPort: 80, HostPort: 8080, HostIP: "10.0.0.1"},
		{ContainerPort: 80, HostPort: 8080, HostIP: "::1", Protocol: "SCTP"},
	}
	var got []string
	for _, m := range sandbox(t, p, 0, "", inCluster).GetPortMappings() {
		got = append(got, m.GetProtocol().String()+m.GetHostIp())
	}
	if want := []string{"TCP", "UDP", "TCP10.0.0.1", "SCTP::1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
