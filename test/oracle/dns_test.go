package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/resolvconf"
)

// resolver returns the text of a node's resolver configuration.
func resolver(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(8) {
		words := make([]string, r.IntN(4))
		for i := range words {
			words[i] = pick(r, []string{"a", "b.c", "b.c.", ".", "1.1.1.1", "ndots:2", "ndots:7", "rotate",
				strings.Repeat("x", 254)})
		}
		first := pick(r, []string{"nameserver", "search", "options", "# search", "domain", ""})
		fmt.Fprintln(&b, first, strings.Join(words, " "))
	}
	return b.String()
}

// resolved is what a pod resolves names with, and of how much it was warned.
type resolved struct {
	Servers, Searches, Options []string
	Warnings                   int
	Wrong                      bool
}

// Pods resolve names as kubelets tell theirs to that know no cluster DNS. The order of options is theirs by chance.
// spec: LIFE-8
func TestNamesAreResolvedAlike(t *testing.T) {
	r := random(t)
	skipped := 0
	for i := range *count {
		text := resolver(r)
		k := minimal()
		k.Spec.HostNetwork = r.IntN(3) == 0
		k.Spec.DNSPolicy = pick(r, []v1.DNSPolicy{"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"})
		if r.IntN(3) > 0 {
			c := &v1.PodDNSConfig{}
			for range r.IntN(5) {
				c.Nameservers = append(c.Nameservers, pick(r, []string{"1.1.1.1", "2.2.2.2", "::1", "3.3.3.3", "4.4.4.4"}))
			}
			for range r.IntN(40) {
				c.Searches = append(c.Searches, strings.Repeat(pick(r, []string{"a", "b", "c"}), 1+r.IntN(255)))
			}
			for range r.IntN(4) {
				c.Options = append(c.Options, v1.PodDNSConfigOption{Name: pick(r, []string{"ndots", "rotate", "edns0"}),
					Value: maybe(r, pick(r, []string{"", "1", "2"}))})
			}
			k.Spec.DNSConfig = c
		}
		theirs := ask[resolved](t, "resolvers", text, k)
		if theirs.Wrong { // a line without an address, which resolvers pass over
			skipped++
			continue
		}
		ours, left := criconfig.DNS(ourPod(t, k), criconfig.Facts{Resolver: resolvconf.Parse(text)})
		options := slices.Sorted(slices.Values(ours.GetOptions()))
		if !slices.Equal(theirs.Servers, ours.GetServers()) || !slices.Equal(theirs.Searches, ours.GetSearches()) ||
			!slices.Equal(theirs.Options, options) || theirs.Warnings != len(left) {
			t.Fatalf("%d: node\n%s\npod %+v\nKubernetes %v, %d warnings\nMonoplane  %v, %q", i, text, k.Spec.DNSConfig,
				theirs, theirs.Warnings, ours, left)
		}
	}
	if skipped > *count*3/4 {
		t.Errorf("%d of %d were not compared", skipped, *count)
	}
}

// mappedPort is a port of the node that leads to one of a pod.
type mappedPort struct {
	ContainerPort, HostPort int32
	HostIP, Protocol        string
}

// The same ports of a node lead to the same ports of a pod.
func TestPortsAreMappedAlike(t *testing.T) {
	r := random(t)
	for range *count {
		k := minimal()
		for range r.IntN(6) {
			k.Spec.Containers[0].Ports = append(k.Spec.Containers[0].Ports, v1.ContainerPort{
				Name: pick(r, []string{"", "", "a", "b"}), ContainerPort: r.Int32N(2), HostPort: r.Int32N(2),
				Protocol: pick(r, []v1.Protocol{"TCP", "UDP"}), HostIP: pick(r, []string{"", "1.2.3.4", "::1"}),
			})
		}
		theirs := ask[[]mappedPort](t, "mapped-ports", k.Spec.Containers[0])
		cfg, err := criconfig.Sandbox(ourPod(t, k), 0, "", criconfig.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		ours := cfg.GetPortMappings()
		same := len(theirs) == len(ours)
		for i := 0; same && i < len(ours); i++ {
			same = theirs[i].ContainerPort == ours[i].GetContainerPort() &&
				theirs[i].HostPort == ours[i].GetHostPort() && theirs[i].HostIP == ours[i].GetHostIp() &&
				theirs[i].Protocol == ours[i].GetProtocol().String()
		}
		if !same {
			t.Fatalf("ports %v\nKubernetes %v\nMonoplane  %v", k.Spec.Containers[0].Ports, theirs, ours)
		}
	}
}
