package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/nodeagent/runtime/ocinode"
)

// Without --cluster-cidr a cluster takes the first range that is free, and keeps it: its pods have addresses of it.
// spec: NET-1
func TestChoosePodRange(t *testing.T) {
	log, dir := slog.New(slog.DiscardHandler), filepath.Join(t.TempDir(), "data")
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
		before, err := podRangeBefore(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := choosePodRange(before, services, inUse, log); err != nil || got != want {
			t.Errorf("the range is %s, %v, want %s", got, err, want)
		}
	}
	choose("10.244.0.0/16")
	used["10.244.0.0/16"] = true
	services[0] = netip.MustParsePrefix("10.245.7.0/24")
	choose("10.246.0.0/16")

	if _, err := datadir.Make(dir); err != nil {
		t.Fatal(err)
	}
	cfg := &monoplane.Config{DataDir: dir, ClusterCIDR: "10.246.0.0/16", Runtime: ocinode.New(ocinode.Config{})}
	keep := func(wantFirst bool) {
		t.Helper()
		if isFirst, err := keepPodRange(cfg); err != nil || isFirst != wantFirst {
			t.Fatalf("first: %v, %v, want %v", isFirst, err, wantFirst)
		}
	}
	keep(true)
	keep(false)
	used["10.246.0.0/16"] = true // by this cluster itself
	choose("10.246.0.0/16")
	cfg.ClusterCIDR = "10.7.0.0/16,fd00:7::/56"
	keep(false)
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
	// One that has a way to all of 10.0.0.0/8, such as a virtual private network; it keeps that where it can.
	inUse = func(p netip.Prefix) error {
		if netip.MustParsePrefix("10.0.0.0/8").Overlaps(p) {
			return fmt.Errorf("%w: 10.0.0.0/8", ocinode.ErrHides)
		}
		return nil
	}
	choose("172.24.0.0/16")
	inUse = func(netip.Prefix) error { return ocinode.ErrHides }
	choose("10.244.0.0/16")
	inUse = func(netip.Prefix) error { return errors.New("the machine has a route") }
	if got, err := choosePodRange("", services, inUse, log); err == nil ||
		!strings.Contains(err.Error(), "the machine has a route") || !strings.Contains(err.Error(), "--cluster-cidr") {
		t.Errorf("where no range is free, %q is taken: %v", got, err)
	}

	for _, r := range []monoplane.Runtime{monoplane.HostRuntime(), ocinode.New(ocinode.Config{HostNetwork: true})} {
		other := &monoplane.Config{DataDir: t.TempDir(), Runtime: r, ClusterCIDR: "10.1.0.0/16"}
		if _, err := keepPodRange(other); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(other.DataDir, podRangeFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a cluster whose pods have no addresses of their own keeps a range of them: %v", err)
		}
	}
}

// A range that is there and cannot be read is an error: pods may run that have addresses of it.
func TestPodRangeThatCannotBeRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	data, err := datadir.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	if before, err := podRangeBefore(dir); before != "" || err != nil {
		t.Errorf("without a file: %q, %v", before, err)
	}
	if _, err := data.Make(podRangeFile); err != nil { // reading a directory fails for root, too
		t.Fatal(err)
	}
	if before, err := podRangeBefore(dir); err == nil || !strings.Contains(err.Error(), podRangeFile) {
		t.Errorf("what cannot be read is taken for %q, %v", before, err)
	}
}

// A range that was chosen is noted when the data directory is locked, before the machine has a link with it, and
// forgotten when nothing has come of the start. One that was named is noted when it was not refused.
//
// spec: NET-1
func TestPodRangeOfAStart(t *testing.T) {
	for _, chosen := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "data")
		if _, err := datadir.Make(dir); err != nil {
			t.Fatal(err)
		}
		cfg := &monoplane.Config{DataDir: dir, ClusterCIDR: "10.7.0.0/16", Runtime: ocinode.New(ocinode.Config{})}
		start := func() *notes { return &notes{cfg: cfg, chosen: chosen} }
		step := func(what string, err error, isKept bool) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			before, err := podRangeBefore(dir)
			if err != nil || (before == cfg.ClusterCIDR) != isKept || (before == "") == isKept {
				t.Errorf("chosen: %v, %s: the range is %q, %v; kept: %v", chosen, what, before, err, isKept)
			}
		}
		first := start()
		step("locked", first.locked(), chosen)
		step("failed", first.failed(), false)
		second := start()
		step("locked again", second.locked(), chosen)
		step("started", second.started(), chosen)
		step("ready", second.ready(), true)
		third := start()
		step("at the next start", third.locked(), true)
		step("which fails", third.failed(), true)
	}
}
