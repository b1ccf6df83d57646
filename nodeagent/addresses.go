package nodeagent

import (
	"net/netip"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/podstate"
)

// addresses returns the machine's addresses, as the node has them.
func (a *Agent) addresses() []string {
	if now := a.moved.Load(); now != nil {
		return *now
	}
	return a.cfg.Machine.IPs
}

// nodeAddresses returns what the status of the node says of them. spec: NODE-1
func (a *Agent) nodeAddresses() []*corev1.NodeAddress {
	var out []*corev1.NodeAddress
	for _, ip := range a.addresses() {
		out = append(out, &corev1.NodeAddress{Type: "InternalIP", Address: ip})
	}
	host := a.cfg.Machine.Hostname
	if host == "" {
		host = a.cfg.NodeName
	}
	return append(out, &corev1.NodeAddress{Type: "Hostname", Address: host})
}

// addressesChanged reports whether the addresses are no longer what the API has.
func (a *Agent) addressesChanged(node *corev1.Node) bool {
	return !slices.EqualFunc(node.GetStatus().GetAddresses(), a.nodeAddresses(), func(a, b *corev1.NodeAddress) bool {
		return a.GetType() == b.GetType() && a.GetAddress() == b.GetAddress()
	})
}

// followAddresses takes over the machine's addresses where they have changed, for the node, for pods that start and in
// the status of those that run. A machine that has lost its address, because a cable was pulled, is still known by it.
func (a *Agent) followAddresses() {
	if a.cfg.Addresses == nil {
		return
	}
	before, now := a.addresses(), a.cfg.Addresses()
	if slices.Equal(before, now) || !slices.ContainsFunc(now, lasts) {
		return
	}
	a.moved.Store(&now)
	a.cfg.Logger.Warn("the machine has other addresses than before", "before", before, "now", now)
	for _, w := range a.list() {
		w.post(podstate.Tick{})
	}
}

func lasts(ip string) bool {
	addr, err := netip.ParseAddr(ip)
	return err == nil && !addr.IsLoopback()
}
