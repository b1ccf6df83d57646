package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monoplane.dev"
	"monoplane.dev/nodeagent/runtime/ocinode"
	"monoplane.dev/rules/podrange"
)

// podRangeFile, in the data directory, holds the range that the cluster's pods had at its last start.
const podRangeFile = "pod-range"

// firstPodRanges are those that are tried, and seven more from each on: 10.N.0.0/16 and 172.N.0.0/16.
var firstPodRanges = []string{podrange.Default, "172.24.0.0/16"}

// choosePodRange returns where the addresses of pods come from when nobody says: what the cluster has had before, else
// the first range that neither the machine uses, such as for another cluster, nor Services have.
func choosePodRange(
	dir string, services []netip.Prefix, inUse func(netip.Prefix) error, log *slog.Logger,
) (string, error) {
	if before, err := os.ReadFile(filepath.Join(dir, podRangeFile)); err == nil {
		text := strings.TrimSpace(string(before))
		if _, err := podrange.Parse(text, 0, 0, services); err == nil {
			return text, nil
		}
	}
	var first error
	for _, from := range firstPodRanges {
		candidate := netip.MustParsePrefix(from)
		for range 8 {
			var why error
			if slices.ContainsFunc(services, candidate.Overlaps) {
				why = fmt.Errorf("the range %s is that of Services", candidate)
			} else {
				why = inUse(candidate)
			}
			if why == nil {
				return candidate.String(), nil
			}
			first = cmp.Or(first, why)
			log.Info("a range is not taken for the addresses of pods", "range", candidate, "reason", why)
			next := candidate.Addr().As4()
			next[1]++
			candidate = netip.PrefixFrom(netip.AddrFrom4(next), candidate.Bits())
		}
	}
	return "", fmt.Errorf("no range is free for the addresses of pods (%w); --cluster-cidr names one", first)
}

// keepPodRange notes the range of the cluster's pods for its next start.
func keepPodRange(cfg monoplane.Config) error {
	if n, ok := cfg.Runtime.(monoplane.Networked); !ok || !n.HasNetwork() {
		return nil
	}
	path := filepath.Join(cfg.DataDir, podRangeFile)
	if before, err := os.ReadFile(path); err == nil && string(before) == cfg.ClusterCIDR+"\n" {
		return nil
	}
	err := os.WriteFile(path+".new", []byte(cfg.ClusterCIDR+"\n"), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("the range of the pods' addresses cannot be kept: %w", err)
	}
	return nil
}

// inUse says why a range cannot be had on this machine.
func inUse(log *slog.Logger) func(netip.Prefix) error {
	return func(p netip.Prefix) error { return ocinode.InUse(p, log) }
}
