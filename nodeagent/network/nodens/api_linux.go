package nodens

import (
	"log/slog"
	"net/netip"

	"monoplane.dev/internal/userids"
)

// Config says which node namespace is meant, and what is known of the network.
type Config struct {
	// Cluster names the cluster and node on this machine: links and tables of the machine carry a hash of it, so that
	// several clusters have several. It must stay the same from one Open to the next.
	Cluster string
	// Dir holds the state: the socket of the helper. It must exist, belong to this user and be closed to others.
	Dir string
	// PodRanges are what pods of this node have their addresses from: one range, or one of each family. The first
	// addresses of each are the node's own: see NodeAddresses.
	PodRanges []netip.Prefix
	// ServiceRanges are what cluster IPs come from. Packets to them never leave the node namespace untranslated.
	ServiceRanges []netip.Prefix
	// Rootless has the namespace made inside a user namespace although the process may be root. Processes that are not
	// root do it anyway.
	Rootless bool
	// IDs are those of the user namespace; without any, the user of this process is root in it, and alone.
	IDs userids.Maps
	// Log takes what is repaired and what goes wrong later; nil discards it.
	Log *slog.Logger
}

// AttachConfig says how a pod is connected.
type AttachConfig struct {
	// Addresses are the pod's, at most one of each family. They are given by the caller (package ipam).
	Addresses []netip.Addr
	// MTU of what the pod sends out of the node, in bytes; 0 for that of the link through which the machine's default
	// route goes. Between pods packets are larger where that makes larger pieces: see docs/network.md.
	MTU int
	// Ingress and Egress bound what the pod receives and sends, in bits a second (annotations
	// kubernetes.io/ingress-bandwidth and egress-bandwidth); 0 for no bound.
	Ingress, Egress uint64
	// HostPorts are ports of the machine that lead to the pod. This process serves them beside the kernel, and so they
	// must be given again, with Attach, after a restart.
	HostPorts []HostPort
}

// HostPort is a port of the machine that leads to a pod.
type HostPort struct {
	// Network is "tcp" or "udp".
	Network string
	// Host is where the machine listens; the unspecified address stands for all of its addresses.
	Host netip.AddrPort
	// Port is the pod's.
	Port uint16
}

// Attachment is how a pod is connected.
type Attachment struct {
	// Link is the name of the veth's end in the node namespace.
	Link string
	// Addresses are the pod's.
	Addresses []netip.Addr
}

// Egress is the way on which packets of pods leave the machine.
type Egress string

// The ways out.
const (
	// EgressMasquerade: the kernel forwards, and gives packets an address of the machine.
	EgressMasquerade Egress = "masquerade"
	// EgressProcess: TCP and UDP end in this process, which sends them on from sockets of the machine. Nothing else
	// leaves, such as ping. A connection is answered as its target answers; a kernel without queues of packets
	// (NFQUEUE) has those that are refused accepted and reset.
	EgressProcess Egress = "process"
)

// Status is what a user is told of the network.
type Status struct {
	// Rootless says that the namespace lives in a user namespace.
	Rootless bool
	// Egress is the way out, and Why says why it is not the kernel's; empty if it is.
	Egress Egress
	Why    string
	// MTU of what pods that do not choose send out of the node, in bytes.
	MTU int
	// IPv6 says whether pods can have addresses of IPv6.
	IPv6 bool
	// Services says whether programs of the machine itself reach this cluster's Services.
	Services bool
}

// Gateway4 and Gateway6 are the addresses of each veth's end in the node namespace, through which pods reach
// everything. Nothing outside of the veth ever sees them.
var (
	Gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	Gateway6 = netip.MustParseAddr("fe80::1")
)

// NodeAddresses returns the two addresses of a pod range that no pod is given: the one that the node namespace has
// itself, from which it speaks to pods, and the one that the machine has for them (as root).
func NodeAddresses(podRange netip.Prefix) (node, machine netip.Addr) {
	node = podRange.Masked().Addr().Next()
	return node, node.Next()
}

// ArrivalAddress returns the address of a pod range at which the node namespace takes what the kernel leads there for
// one of the machine's own addresses, which packets cannot keep on their way. Nobody has it.
func ArrivalAddress(podRange netip.Prefix) netip.Addr { return podRange.Masked().Addr() }
