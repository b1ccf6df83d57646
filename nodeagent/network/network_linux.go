package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/codec/json"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/nodeagent/network/ipam"
	"monoplane.dev/nodeagent/network/nodens"
)

// registerFile is the register of addresses in the directory of the state.
const registerFile = "addresses.json"

// Annotations that bound what a pod receives and sends, in bits a second.
const (
	ingressBandwidth = "kubernetes.io/ingress-bandwidth"
	egressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// Bounds of a bandwidth, as in Kubernetes.
const (
	leastBandwidth = 1_000
	mostBandwidth  = 1_000_000_000_000_000
)

// Network is the open network of a node. Its methods may be called concurrently.
type Network struct {
	namespace *nodens.Namespace
	register  *ipam.Register
}

// Open makes the network, or finds it again and repairs it.
func Open(ctx context.Context, cfg nodens.Config) (*Network, error) {
	if err := datadir.Sweep(cfg.Dir); err != nil {
		return nil, err
	}
	register, err := ipam.Open(filepath.Join(cfg.Dir, registerFile), cfg.PodRanges)
	if err != nil {
		return nil, err
	}
	namespace, err := nodens.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	n := &Network{namespace: namespace, register: register}
	if err := n.adopt(ctx); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return n, nil
}

// adopt enters what is connected into the register, for the case that its file was lost. What the register gives to
// somebody else is disconnected: whoever it is has no right to it.
func (n *Network) adopt(ctx context.Context) error {
	attached, err := n.namespace.Attached(ctx)
	if err != nil {
		return err
	}
	for sandbox, a := range attached {
		if n.register.Adopt(sandbox, a.Addresses) == nil {
			continue
		}
		if err := n.namespace.Detach(ctx, sandbox); err != nil {
			return err
		}
	}
	return nil
}

// Namespace returns the node namespace, for Services and names.
func (n *Network) Namespace() *nodens.Namespace { return n.namespace }

// Owners returns which sandboxes have which addresses.
func (n *Network) Owners() map[string][]netip.Addr { return n.register.Owners() }

// Attach gives a sandbox its link and addresses, of which the first is the pod's address. Namespace is the path of its
// network namespace. Before it is connected, before is told its addresses; an error of it keeps the sandbox from being
// connected. Asked again for the same sandbox, it returns what it has, and repairs it.
func (n *Network) Attach(
	ctx context.Context, sandbox, namespace string, config *runtimeapi.PodSandboxConfig,
	before func(addresses []netip.Addr) error,
) ([]netip.Addr, error) {
	attach, err := Wanted(config)
	if err != nil {
		return nil, err
	}
	netns, err := os.Open(namespace)
	if err != nil {
		return nil, fmt.Errorf("the network namespace of the sandbox %s: %w", sandbox, err)
	}
	defer netns.Close()
	// An address stays the sandbox's although connecting it fails: it may have been connected all the same.
	if attach.Addresses, err = n.register.Allocate(sandbox); err != nil {
		return nil, err
	}
	if err := before(attach.Addresses); err != nil {
		return nil, err
	}
	attached, err := n.namespace.Attach(ctx, sandbox, netns, attach)
	return attached.Addresses, err
}

// Detach gives back what Attach has given. It is no error if there is nothing.
func (n *Network) Detach(ctx context.Context, sandbox string) error {
	if err := n.namespace.Detach(ctx, sandbox, n.register.Owners()[sandbox]...); err != nil {
		return err
	}
	return n.register.Release(sandbox)
}

// Retain detaches all sandboxes but those that there are.
func (n *Network) Retain(ctx context.Context, exists func(sandbox string) bool) error {
	for sandbox, had := range n.register.Owners() {
		if exists(sandbox) {
			continue
		}
		if err := n.namespace.Detach(ctx, sandbox, had...); err != nil {
			return err
		}
	}
	n.namespace.RetainPorts(exists)
	return n.register.Retain(exists)
}

// Close ends what this process does for the network. What is connected stays so.
func (n *Network) Close() error { return n.namespace.Close() }

// Owners returns which sandboxes have which addresses in the network of a directory that is not open.
func Owners(dir string) (map[string][]netip.Addr, error) {
	register, err := ipam.Open(filepath.Join(dir, registerFile), nil)
	if err != nil {
		return nil, err
	}
	return register.Owners(), nil
}

// Remove takes everything away that there is of a network; its pods must have ended. What is kept is which addresses
// they have had, for the next Open: others get those last.
func Remove(ctx context.Context, cfg nodens.Config) error {
	if err := nodens.Remove(ctx, cfg); err != nil {
		return err
	}
	if err := datadir.Sweep(cfg.Dir); err != nil {
		return err
	}
	path := filepath.Join(cfg.Dir, registerFile)
	register, err := ipam.Open(path, nil)
	if err == nil {
		err = register.Retain(func(string) bool { return false })
	} else {
		err = os.Remove(path) // It cannot be read, and no pod is left that could have an address.
	}
	if err != nil {
		return fmt.Errorf("the register of the pods' addresses: %w", err)
	}
	return nil
}

// Wanted reads from a sandbox's configuration how it is to be connected.
func Wanted(config *runtimeapi.PodSandboxConfig) (attach nodens.AttachConfig, err error) {
	if attach.Ingress, err = bandwidth(config, ingressBandwidth); err != nil {
		return attach, err
	}
	if attach.Egress, err = bandwidth(config, egressBandwidth); err != nil {
		return attach, err
	}
	for _, m := range config.GetPortMappings() {
		if m.GetHostPort() == 0 {
			continue
		}
		h := nodens.HostPort{Network: strings.ToLower(m.GetProtocol().String()), Port: uint16(m.GetContainerPort())}
		if h.Network != "tcp" && h.Network != "udp" {
			return attach, fmt.Errorf("the host port %d is of %s; host ports are of TCP or UDP", m.GetHostPort(),
				m.GetProtocol())
		}
		if m.GetHostPort() < 0 || m.GetHostPort() > 65535 || m.GetContainerPort() < 1 || m.GetContainerPort() > 65535 {
			return attach, fmt.Errorf("the host port %d for the port %d is none: ports are from 1 to 65535", m.GetHostPort(),
				m.GetContainerPort())
		}
		host := netip.IPv6Unspecified() // All addresses of the machine.
		if ip := m.GetHostIp(); ip != "" {
			if host, err = netip.ParseAddr(ip); err != nil {
				return attach, fmt.Errorf("the address of the host port %d: %w", m.GetHostPort(), err)
			}
			if host == netip.IPv4Unspecified() {
				host = netip.IPv6Unspecified()
			}
		}
		h.Host = netip.AddrPortFrom(host, uint16(m.GetHostPort()))
		attach.HostPorts = append(attach.HostPorts, h)
	}
	return attach, nil
}

// bandwidth reads an annotation; 0 if there is none.
func bandwidth(config *runtimeapi.PodSandboxConfig, name string) (uint64, error) {
	text, ok := config.GetAnnotations()[name]
	if !ok {
		return 0, nil
	}
	q, err := json.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("the annotation %s is %q, which is no quantity: %w", name, text, err)
	}
	if q.CmpInt64(leastBandwidth) < 0 || q.CmpInt64(mostBandwidth) > 0 {
		return 0, fmt.Errorf("the annotation %s is %q; it must be from 1k to 1P bits a second", name, text)
	}
	return uint64(q.Value()), nil
}
