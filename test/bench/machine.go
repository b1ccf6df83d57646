package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink"

	"monoplane.dev/nodeagent/network/nodens"
)

// machine is this program in user and network namespaces of its own, which stand for a machine on which it is root:
// its node namespace and two pods of it.
type machine struct {
	cfg  nodens.Config
	node *nodens.Namespace
	pods []*inNamespace
}

// open makes it; its way out is a link of an MTU, which hands on connections in pieces of 64 KiB, as of most machines.
func (m *machine) open(ctx context.Context, dir string, mtu int) error {
	m.cfg = nodens.Config{Cluster: "bench", Dir: dir, PodRanges: []netip.Prefix{netip.MustParsePrefix(benchPods)},
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix(benchServiceRange)}}
	err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
	if err != nil {
		return err
	}
	if err := wayOut(mtu); err != nil {
		return fmt.Errorf("the way out of the machine: %w", err)
	}
	if m.node, err = nodens.Open(ctx, m.cfg); err != nil {
		return err
	}
	if s := m.node.Status(); s.Rootless || s.Egress != nodens.EgressMasquerade {
		return fmt.Errorf("the network is not as it is as root: %+v", s)
	}
	for i, at := range []string{benchPodA, benchPodB} {
		netns, err := m.node.NewPodNamespace(ctx)
		if err != nil {
			return err
		}
		defer netns.Close()
		_, err = m.node.Attach(ctx, fmt.Sprint("pod", i), netns,
			nodens.AttachConfig{Addresses: []netip.Addr{netip.MustParseAddr(at)}})
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.Command("nsenter", "--net=/proc/self/fd/3", "--", self)
		cmd.ExtraFiles = []*os.File{netns}
		pod, err := startInNamespace(cmd)
		if err != nil {
			return err
		}
		m.pods = append(m.pods, pod)
	}
	_, err = m.pods[1].do(inOrder{Serve: benchPodB + benchPort})
	return err
}

func (m *machine) close(ctx context.Context) error {
	for _, p := range m.pods {
		p.close()
	}
	if m.node == nil {
		return nil
	}
	return errors.Join(m.node.Close(), nodens.Remove(ctx, m.cfg))
}

// wayOut makes a link that leads nowhere, with the default route over it.
func wayOut(mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "lan0", mtu
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = "lan1", uint32(mtu)
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	for _, name := range []string{"lan1", "lan0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName("lan0")
	if err != nil {
		return err
	}
	if got := link.Attrs().GSOIPv4MaxSize; got > usualSegment {
		return fmt.Errorf("it takes pieces of %d bytes", got)
	}
	at := &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: at}); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 2)})
}

// benchRootPods compares pods as they are as root, on a machine whose way out takes less in one piece than they do,
// with the bare pair: by their addresses, and by a cluster IP among many.
func benchRootPods(e *env, rounds int, size int64, mtu int, bare func(int) (float64, error)) error {
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	ns, err := enterOwnNamespace()
	if err != nil {
		return err
	}
	defer ns.close()
	if _, err := ns.do(inOrder{Machine: dir, MTU: mtu}); err != nil {
		return fmt.Errorf("pods as root: %w", err)
	}
	count := e.size(manyServices)
	if _, err := ns.do(inOrder{Services: count}); err != nil {
		return fmt.Errorf("services as root: %w", err)
	}
	for _, way := range []struct{ name, to string }{
		{"pod to pod, as root", benchPodB},
		{fmt.Sprintf("  the same by a cluster IP, among %d", count), benchClusterIP(0)},
	} {
		p, err := paired(rounds, func(int) (float64, error) {
			return ns.do(inOrder{Send: way.to + benchPort, Bytes: size})
		}, bare)
		if err != nil {
			return err
		}
		e.gigabits(way.name, p, "bare veth pair", 0.9)
	}
	return nil
}
