package wire

import (
	"net/netip"
)

// Version is that of these messages. A helper of another cannot be used. What no version may change is how a request
// is sent and answered, what one without any field means, Replace, and the fields of Hello: by them a server has a
// helper of any version become one of its own.
const Version = 3

// Request asks for one thing: the field that is set. One without any asks who the helper is.
type Request struct {
	Replace   *Replace   `json:",omitempty"` // With the program.
	Setup     *Setup     `json:",omitempty"`
	Attach    *Attach    `json:",omitempty"` // With the pod's namespace.
	Detach    *Detach    `json:",omitempty"`
	Attached  *Attached  `json:",omitempty"`
	Socket    *Socket    `json:",omitempty"` // Answered with the socket; with a pod's namespace, if it is Inside.
	Namespace *Namespace `json:",omitempty"` // Answered with the namespace.
	Addresses *Addresses `json:",omitempty"`
	End       *End       `json:",omitempty"`
}

// Reply answers a Request.
type Reply struct {
	Hello    Hello               `json:",omitzero"`
	Attached map[string]Attached `json:",omitempty"`
	// Err says what went wrong; empty if nothing did. Errno is what the kernel said, 0 if it is not to blame.
	Err   string `json:",omitempty"`
	Errno int    `json:",omitempty"`
}

// Hello says who the helper is.
type Hello struct {
	Version int
	// Program is the file that the helper is a process of.
	Program Program `json:",omitzero"`
	// Namespace is the inode of the network namespace, which tells it from others that there are.
	Namespace uint64
	IPv6      bool
}

// Program is the file of a program. While a process of it lives, no other file of the machine is the same.
type Program struct{ Device, Inode uint64 }

// Replace has the helper become a process of the program that comes with the request, in the same namespaces, and
// start another spare. It is answered only if that fails: then all is as it was. Otherwise the connection ends.
type Replace struct{}

// Setup makes the node namespace as it should be; repeated, it repairs. What it does not name is left alone.
type Setup struct {
	PodRanges, ServiceRanges []netip.Prefix
	// Uplink is the name of the link to the machine; empty if there is none. Machine are the machine's addresses on it.
	Uplink  string
	Machine []netip.Addr
	MTU     int
	// Segment is that of Attach, for the uplink.
	Segment int
	// Process says that packets which leave go to the process that listens on TCP and UDP, by address family.
	Process  bool
	TCP, UDP []netip.AddrPort
	// Queue is the number of the queue (NFQUEUE) from which the process takes connections of TCP before they are
	// answered; 0 if it does not. It gives back those that are to be refused with the mark Refused.
	Queue uint16 `json:",omitempty"`
}

// Refused is the mark of what the process gives back so that it is refused.
const Refused = 0x6d71

// Attach connects a pod.
type Attach struct {
	Sandbox   string
	PodRanges []netip.Prefix
	Addresses []netip.Addr
	MTU       int
	// Segment is the most of a connection that TCP hands on in one piece, in bytes, if the link can take that much;
	// what is less than the kernel's own bound changes nothing.
	Segment         int
	Inside          *Inside `json:",omitempty"`
	Ingress, Egress uint64  // Bits a second; 0 for no bound.
}

// Inside is what pods of one node send each other, where it may be larger than what leaves the node. The kernel has
// one bound of a piece for each link, and counts the packets in it as well: so many small ones, for what leaves, come
// to the Segment of Attach, and as many large ones to more. With kernels that have no such bound for IPv4 it does
// nothing.
type Inside struct {
	// Ranges are the destinations: addresses of pods and of Services. To all others goes what the MTU of Attach allows,
	// and to those of Machine, which has addresses of the pods' ranges.
	Ranges  []netip.Prefix
	Machine []netip.Addr
	// MTU of the pod's link, and Segment of connections over it.
	MTU, Segment int
	// Packets is the most of them in a piece, wherever it goes.
	Packets int
}

// Detach disconnects it.
type Detach struct{ Sandbox string }

// Attached asks for what is connected, and says it.
type Attached struct {
	Link      string
	Addresses []netip.Addr
}

// Socket describes a socket to be opened in the node namespace.
type Socket struct {
	Domain, Type, Protocol int
	// Transparent lets it have addresses that are not the node's; Original tells whom packets of UDP were for; Shared
	// lets several have one address.
	Transparent, Original, Shared bool
	Bind                          netip.AddrPort `json:",omitzero"`
	Listen                        bool
	// Inside says that it is to be opened in the namespace that comes with the request.
	Inside bool `json:",omitempty"`
}

// Kinds of Namespace.
const (
	Node = "node"
	User = "user"
	Pod  = "pod" // A new one.
)

// Namespace asks for a namespace.
type Namespace struct{ Kind string }

// Addresses gives the node namespace addresses of its own, or takes them away.
type Addresses struct{ Add, Remove []netip.Addr }

// End has the helper end.
type End struct{}
