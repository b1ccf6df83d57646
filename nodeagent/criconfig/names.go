package criconfig

import (
	"fmt"
	"net/netip"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	// maxLabel is how long a host name may be that is no more than that.
	maxLabel = 63
	// maxNodeName is what the kernel allows a host name to have.
	maxNodeName = 64
)

// names returns the pod's host name, and the domain that it is in; empty for none. spec: LIFE-8, NET-1
func names(p *corev1.Pod, f Facts) (host, domain string) {
	spec, meta := p.GetSpec(), p.GetMetadata()
	switch {
	case spec.HostnameOverride != nil:
		return cutName(spec.GetHostnameOverride()), ""
	case spec.GetHostname() != "":
		host = cutName(spec.GetHostname())
	default:
		host = cutName(meta.GetName())
	}
	if spec.GetSubdomain() != "" {
		domain = spec.GetSubdomain() + "." + meta.GetNamespace() + ".svc." + f.node().ClusterDomain
	}
	return host, domain
}

// cutName makes a name, such as a pod's, no longer than a host name may be.
func cutName(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	return strings.TrimRight(name[:maxLabel], "-.")
}

// hostname returns what the containers have as their host name: the fully qualified one where the pod asks for that,
// and the node's own for pods on the node's network.
func hostname(p *corev1.Pod, f Facts) string {
	if p.GetSpec().GetHostNetwork() && f.NodeHostname != "" {
		return f.NodeHostname
	}
	host, domain := names(p, f)
	if domain != "" && p.GetSpec().GetSetHostnameAsFQDN() {
		return host + "." + domain
	}
	return host
}

// checkHostname refuses a host name that the kernel does not take.
func checkHostname(name string) error {
	if len(name) > maxNodeName {
		return fmt.Errorf("setHostnameAsFQDN: the FQDN %s is too long (%d characters is the max, %d characters requested)",
			name, maxNodeName, len(name))
	}
	return nil
}

// hostnameFields lists the fields that ask for names, of the pod or of others. On the node's network those for the
// host name mean nothing, as in Kubernetes.
func hostnameFields(p *corev1.Pod) string {
	spec := p.GetSpec()
	var out []string
	if !spec.GetHostNetwork() {
		if spec.GetHostname() != "" {
			out = append(out, "hostname")
		}
		if spec.HostnameOverride != nil {
			out = append(out, "hostnameOverride")
		}
		if spec.GetSubdomain() != "" {
			out = append(out, "subdomain")
		}
		if spec.GetSetHostnameAsFQDN() {
			out = append(out, "setHostnameAsFQDN")
		}
	}
	if len(spec.GetHostAliases()) > 0 {
		out = append(out, "hostAliases")
	}
	if spec.DnsConfig != nil {
		out = append(out, "dnsConfig")
	}
	return strings.Join(out, ",")
}

// HostsPath is where a container finds the addresses of names that no name server has to be asked for.
const HostsPath = "/etc/hosts"

// Hosts returns the text of a pod's hosts file: its own name at its addresses, and the aliases that it asks for. The
// file of a pod on the node's network begins with the node's own, which is given. The comments are those of kubelets.
// spec: LIFE-8
func Hosts(p *corev1.Pod, f Facts, ofNode []byte) []byte {
	var b strings.Builder
	if p.GetSpec().GetHostNetwork() {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(ofNode)
		if n := len(ofNode); n > 0 && ofNode[n-1] != '\n' {
			b.WriteByte('\n')
		}
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		host, domain := names(p, f)
		for _, ip := range f.PodIPs {
			b.WriteString(ip)
			b.WriteByte('\t')
			if domain != "" {
				b.WriteString(host + "." + domain + "\t")
			}
			b.WriteString(host + "\n")
		}
	}
	if aliases := p.GetSpec().GetHostAliases(); len(aliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range aliases {
			b.WriteString(a.GetIp() + "\t" + strings.Join(a.GetHostnames(), "\t") + "\n")
		}
	}
	return []byte(b.String())
}

// mountsHosts reports whether a container has something of its own in the place of the hosts file.
func mountsHosts(c *corev1.Container) bool {
	for _, m := range c.GetVolumeMounts() {
		if m.GetMountPath() == HostsPath {
			return true
		}
	}
	return false
}

// ports returns what of the node's ports leads to the pod's, each once.
func ports(p *corev1.Pod) []*runtimeapi.PortMapping {
	type port struct {
		family, name string
		number, host int32
	}
	var out []*runtimeapi.PortMapping
	for _, c := range p.GetSpec().GetContainers() {
		seen := make(map[port]bool, len(c.GetPorts()))
		for _, has := range c.GetPorts() {
			key := port{name: has.GetName()}
			if key.name == "" {
				key = port{family(has.GetHostIP()), has.GetProtocol() + " " + has.GetHostIP(), has.GetContainerPort(),
					has.GetHostPort()}
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol(has.GetProtocol()), ContainerPort: has.GetContainerPort(),
				HostPort: has.GetHostPort(), HostIp: has.GetHostIP(),
			})
		}
	}
	return out
}

// family tells the families of addresses apart.
func family(ip string) string {
	addr, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
		return "any"
	case addr.Is4() || addr.Is4In6():
		return "v4"
	default:
		return "v6"
	}
}

func protocol(name string) runtimeapi.Protocol {
	switch name {
	case "UDP":
		return runtimeapi.Protocol_UDP
	case "SCTP":
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}
