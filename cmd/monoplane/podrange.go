package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"monoplane.dev"
	"monoplane.dev/internal/datadir"
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
	before string, services []netip.Prefix, inUse func(netip.Prefix) error, log *slog.Logger,
) (string, error) {
	if _, err := podrange.Parse(before, 0, 0, services); before != "" && err == nil {
		return before, nil
	}
	var first error
	hides := "" // the first that is free, and hides a part of a network of the machine's
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
			if errors.Is(why, ocinode.ErrHides) {
				hides = cmp.Or(hides, candidate.String())
			}
			first = cmp.Or(first, why)
			log.Info("a range is not taken for the addresses of pods", "range", candidate, "reason", why)
			next := candidate.Addr().As4()
			next[1]++
			candidate = netip.PrefixFrom(netip.AddrFrom4(next), candidate.Bits())
		}
	}
	if hides != "" {
		return hides, nil
	}
	return "", fmt.Errorf("no range is free for the addresses of pods (%w); --cluster-cidr names one", first)
}

// podRangeBefore returns the range of the cluster's pods at its last start; empty when there was none. What cannot be
// read is not what is not there: the pods that run have addresses of it.
func podRangeBefore(dataDir string) (string, error) {
	dir, err := datadir.Open(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	text, err := dir.ReadFile(podRangeFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the range of the pods' addresses: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// keepPodRange notes the range of the cluster's pods for its next start, and reports whether none was noted before.
func keepPodRange(cfg *monoplane.Config) (isFirst bool, err error) {
	if n, ok := cfg.Runtime.(monoplane.Networked); !ok || !n.HasNetwork() {
		return false, nil
	}
	before, err := podRangeBefore(cfg.DataDir)
	if err != nil || before == cfg.ClusterCIDR {
		return false, err
	}
	dir, err := datadir.Open(cfg.DataDir)
	if err == nil {
		err = errors.Join(dir.Write(podRangeFile, []byte(cfg.ClusterCIDR+"\n")), dir.Sync())
	}
	if err != nil {
		return false, fmt.Errorf("the range of the pods' addresses cannot be kept: %w", err)
	}
	return before == "", nil
}
