package services

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/conntrack"
)

// forgetFlows makes connection tracking forget UDP flows to entries that lead to endpoints where they no longer go, so
// that their next packet is looked at anew. TCP connections are left to their ends.
func (a *Applier) forgetFlows(entries map[Entry]bool) error {
	udp := map[Entry]map[netip.AddrPort]bool{}
	for e := range entries {
		if e.Protocol == "udp" {
			udp[e] = a.ledger.backends(e)
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
			if !stale(f, udp) {
				continue
			}
			if err := conntrack.Forget(conn, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// stale says whether a flow went to one of the entries and ends where that does not lead.
func stale(f conntrack.Flow, entries map[Entry]map[netip.AddrPort]bool) bool {
	if f.Orig.Protocol != unix.IPPROTO_UDP {
		return false
	}
	v6 := f.Family == unix.AF_INET6
	e := Entry{Protocol: "udp", V6: v6, Addr: f.Orig.Dst.Addr(), Port: f.Orig.Dst.Port()}
	if to, ok := entries[e]; ok {
		return !to[f.Reply.Src]
	}
	e.Addr = netip.Addr{}
	to, ok := entries[e] // a node port, of a flow that was led somewhere
	return ok && f.Translated() && !to[f.Reply.Src]
}
