package main

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev"
	"monoplane.dev/nodeagent/runtime/ocinode"
)

// Without --cluster-cidr a cluster takes the first range that is free, and keeps it: its pods have addresses of it.
// spec: NET-1
func TestChoosePodRange(t *testing.T) {
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	used := map[string]bool{}
	inUse := func(p netip.Prefix) error {
		if used[p.String()] {
			return errors.New("the machine has a route")
		}
		return nil
	}
	services := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	choose := func(want string) {
		t.Helper()
		if got, err := choosePodRange(dir, services, inUse, log); err != nil || got != want {
			t.Errorf("the range is %s, %v, want %s", got, err, want)
		}
	}
	choose("10.244.0.0/16")
	used["10.244.0.0/16"] = true
	services[0] = netip.MustParsePrefix("10.245.7.0/24")
	choose("10.246.0.0/16")

	cfg := monoplane.Config{DataDir: dir, ClusterCIDR: "10.246.0.0/16", Runtime: ocinode.New(ocinode.Config{})}
	if err := keepPodRange(cfg); err != nil {
		t.Fatal(err)
	}
	used["10.246.0.0/16"] = true // by this cluster itself
	choose("10.246.0.0/16")
	cfg.ClusterCIDR = "10.7.0.0/16,fd00:7::/56"
	if err := keepPodRange(cfg); err != nil {
		t.Fatal(err)
	}
	choose("10.7.0.0/16,fd00:7::/56")

	if err := os.WriteFile(filepath.Join(dir, podRangeFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	choose("10.247.0.0/16")
	// A machine in a network that has all of 10.0.0.0/8, and one that uses everything.
	inUse = func(p netip.Prefix) error {
		if netip.MustParsePrefix("10.0.0.0/8").Overlaps(p) {
			return errors.New("the machine has a route")
		}
		return nil
	}
	choose("172.24.0.0/16")
	inUse = func(netip.Prefix) error { return errors.New("the machine has a route") }
	if got, err := choosePodRange(dir, services, inUse, log); err == nil ||
		!strings.Contains(err.Error(), "the machine has a route") || !strings.Contains(err.Error(), "--cluster-cidr") {
		t.Errorf("where no range is free, %q is taken: %v", got, err)
	}

	for _, r := range []monoplane.Runtime{monoplane.HostRuntime(), ocinode.New(ocinode.Config{HostNetwork: true})} {
		other := monoplane.Config{DataDir: t.TempDir(), Runtime: r, ClusterCIDR: "10.1.0.0/16"}
		if err := keepPodRange(other); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(other.DataDir, podRangeFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a cluster whose pods have no addresses of their own keeps a range of them: %v", err)
		}
	}
}
