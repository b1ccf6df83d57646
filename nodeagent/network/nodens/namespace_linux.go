package nodens

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
)

// Namespace is an open node namespace. Its methods may be called concurrently.
type Namespace struct{}

var errNotBuilt = errors.New("not built yet")

// Open makes the node namespace, or finds it again and repairs it.
func Open(ctx context.Context, cfg Config) (*Namespace, error) { return nil, errNotBuilt }

// Status says how the network is.
func (n *Namespace) Status() Status { return Status{} }

// NewPodNamespace makes a network namespace for a pod, with lo up, which the node namespace can be connected to: without
// root it belongs to the node's user namespace. It lasts as long as a process is in it or somebody holds the file or has
// mounted it.
func (n *Namespace) NewPodNamespace(ctx context.Context) (*os.File, error) { return nil, errNotBuilt }

// UserNamespace returns the user namespace that the node namespace belongs to: without root, whoever enters namespaces
// of pods must have entered it, or one below it, before.
func (n *Namespace) UserNamespace(ctx context.Context) (*os.File, error) { return nil, errNotBuilt }

// Attach connects the namespace of a sandbox. Repeated, it makes things as the configuration of the last call says.
// Without root, netns must belong to the node's user namespace or one below it: see NewPodNamespace.
func (n *Namespace) Attach(ctx context.Context, sandbox string, netns *os.File, cfg AttachConfig) (Attachment, error) {
	return Attachment{}, errNotBuilt
}

// Detach takes away what Attach has made. It may be called for a sandbox that is not connected, or no more.
func (n *Namespace) Detach(ctx context.Context, sandbox string) error { return errNotBuilt }

// Attached returns the sandboxes that are connected, and their addresses, as the kernel has them.
func (n *Namespace) Attached(ctx context.Context) (map[string]Attachment, error) { return nil, errNotBuilt }

// NFTables returns a connection to the nftables of the node namespace. Whoever changes it there keeps to a table of
// their own.
func (n *Namespace) NFTables() (*nftables.Conn, error) { return nil, errNotBuilt }

// Netlink returns a socket of the netlink family protocol, such as unix.NETLINK_NETFILTER for conntrack, that was opened
// in the node namespace.
func (n *Namespace) Netlink(ctx context.Context, protocol int) (*os.File, error) { return nil, errNotBuilt }

// Listen listens for TCP in the node namespace, on addresses that the namespace has or, where transparent says so, on
// any.
func (n *Namespace) Listen(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
	return nil, errNotBuilt
}

// ListenPacket does so for UDP.
func (n *Namespace) ListenPacket(ctx context.Context, address netip.AddrPort) (*net.UDPConn, error) {
	return nil, errNotBuilt
}

// Dial connects to an address of a pod or Service out of the node namespace; network is "tcp" or "udp". A valid source is
// the address that the other side sees, which need not be one of the node's.
func (n *Namespace) Dial(ctx context.Context, network string, source, address netip.AddrPort) (net.Conn, error) {
	return nil, errNotBuilt
}

// AddAddresses has the node namespace take addresses for its own, such as the cluster IP of DNS, so that it can listen on
// them; those that it does not have. RemoveAddresses gives them back.
func (n *Namespace) AddAddresses(ctx context.Context, addresses ...netip.Addr) error { return errNotBuilt }

// RemoveAddresses undoes AddAddresses.
func (n *Namespace) RemoveAddresses(ctx context.Context, addresses ...netip.Addr) error { return errNotBuilt }

// PortConfig says what is served on a port of the machine.
type PortConfig struct {
	// Network is "tcp" or "udp".
	Network string
	// Listen is the machine's address and port.
	Listen netip.AddrPort
	// Target says where a client is led: an address in the node namespace, such as a pod's or a Service's. It is asked
	// for each connection, and for UDP for each client.
	Target func(client netip.AddrPort) (netip.AddrPort, error)
}

// ServePort serves a port of the machine (a node port, a host port), until the context or the Port ends. Connections are
// led to their target with the client's address as their source, unless it is one that cannot be answered from inside:
// loopback, or of the pod or service ranges. It fails if the port is taken.
func (n *Namespace) ServePort(ctx context.Context, cfg PortConfig) (*Port, error) { return nil, errNotBuilt }

// Port is a port of the machine that is served.
type Port struct{}

// Close ends the port and its connections, and waits for them to have ended.
func (p *Port) Close() error { return errNotBuilt }

// Addr is where the machine listens.
func (p *Port) Addr() netip.AddrPort { return netip.AddrPort{} }

// Close ends what this process does for the namespace: host ports, and egress through the process. The namespace stays,
// for the next Open.
func (n *Namespace) Close() error { return errNotBuilt }

// Remove ends the helper, and with it the namespace, and takes away what the machine has of it. It may be called for a
// namespace of which only parts are left.
func Remove(ctx context.Context, cfg Config) error { return errNotBuilt }
