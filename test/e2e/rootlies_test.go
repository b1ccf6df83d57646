//go:build rootonly

package e2e_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"monoplane.dev/test/criproxy"
)

var (
	runtimeLies = flag.Int("runtimelies", 4,
		"how many scenarios of pods are played while containerd seems to hang, fail and lie, chosen at random")
	runtimeLieSeed = flag.Uint64("runtimelieseed", 0, "the seed of their choice and of the faults; random when 0")
)

// TestRootContainerdLies plays scenarios while a containerd seems to be slow, to hang, to die under calls, to fail at
// what it has done, to do things twice, and to list what was so a while ago: nothing runs twice, nothing is lost, no
// grace is cut, and a neighbour goes on.
// spec: SAFE-1, SAFE-4, DEL-10, NODE-1
func TestRootContainerdLies(t *testing.T) {
	t.Parallel()
	seed := *runtimeLieSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	t.Logf("seed %d", seed)
	ctd := newContainerd(t)
	proxy, err := criproxy.New(filepath.Join(filepath.Dir(shortDir(t)), "proxy"), ctd.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	c := startIn(t, shortDir(t), "--runtime-endpoint", proxy.Endpoint())
	c.playDisturbed(t, *runtimeLies, seed, func(ctx context.Context, moments *rand.Rand) error {
		return lie(ctx, proxy, moments)
	})
	t.Logf("faults: %v", proxy.Count())
}

// lie lets a runtime seem bad for a few seconds, up to three times, until ctx ends.
func lie(ctx context.Context, proxy *criproxy.Proxy, moments *rand.Rand) error {
	defer proxy.Mend()
	for range 3 {
		// The proxy draws on goroutines of its own.
		proxy.Disturb(criproxy.AtRandom(rand.New(rand.NewPCG(moments.Uint64(), 0)))) //nolint:gosec // repeatable on purpose
		bad := time.Duration(3_000+moments.IntN(7_000)) * time.Millisecond
		good := time.Duration(500+moments.IntN(2_000)) * time.Millisecond
		select {
		case <-time.After(bad):
		case <-ctx.Done():
			return nil
		}
		proxy.Mend()
		select {
		case <-time.After(good):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
