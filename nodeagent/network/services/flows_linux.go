package services

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/conntrack"
)

// forgetFlows makes connection tracking forget UDP flows to entries that lead to endpoints where they, from such a
// client, no longer go, so that their next packet is looked at anew. TCP connections are left to their ends.
func (a *Applier) forgetFlows(entries map[Entry]bool) error {
	udp := map[Entry]bool{}
	for e := range entries {
		if e.Protocol == "udp" {
			udp[e] = true
		}
	}
	if len(udp) == 0 {
		return nil
	}
	conn, err := a.cfg.Netfilter()
	if err != nil {
		return fmt.Errorf("opening a netfilter socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		flows, err := conntrack.Flows(conn, family)
		if err != nil {
			return err
		}
		for _, f := range flows {
			if !a.stale(f, udp) {
				continue
			}
			if err := conntrack.Forget(conn, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// stale says whether a flow went to one of the entries and ends where that does not lead its client.
func (a *Applier) stale(f conntrack.Flow, entries map[Entry]bool) bool {
	if f.Orig.Protocol != unix.IPPROTO_UDP {
		return false
	}
	v6 := f.Family == unix.AF_INET6
	e := Entry{Protocol: "udp", V6: v6, Addr: f.Orig.Dst.Addr(), Port: f.Orig.Dst.Port()}
	if !entries[e] {
		e.Addr = netip.Addr{} // a node port, of a flow that was led somewhere
		if !entries[e] || !f.Translated() {
			return false
		}
	}
	return !slices.Contains(a.ledger.backends(e, f.Orig.Src.Addr(), a.cfg.Inside), f.Reply.Src)
}
