//go:build rootonly

package e2e_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"monoplane.dev/test/lifecycle"
)

// How many of the scenarios of a pod's life are drawn for images, and by which seed.
var (
	imageScenes     = flag.Int("imagescenes", 12, "how many scenarios are played with images, as each user; 0: all")
	imageScenesSeed = flag.Uint64("imagescenesseed", 0, "which; 0: at random")
)

// TestRootImageLifecycle plays scenarios of package lifecycle with containers of an image and a network of their own,
// as root.
func TestRootImageLifecycle(t *testing.T) {
	playOnImages(t, newMachine(t), "oci")
}

// TestRootUserImageLifecycle does so as a user who is not root, with nothing installed and nothing allowed.
func TestRootUserImageLifecycle(t *testing.T) {
	m := newMachine(t)
	m.uid = unprivileged
	playOnImages(t, m, "oci-user")
}

func playOnImages(t *testing.T, m *machine, runtime string) {
	t.Helper()
	program, err := os.ReadFile(binary(t, "act"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := lifecycle.All(runtime)
	if err != nil {
		t.Fatal(err)
	}
	seed := *imageScenesSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-imagescenesseed=%d", seed)
	if *imageScenes > 0 {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:min(*imageScenes, len(all))]
	}
	c := m.imageCluster(t).begin(t)
	c.dialer = m.connect
	namespace := c.namespace(t)
	t.Run("scenes", func(t *testing.T) {
		for _, s := range all {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				journal := newJournal(t)
				path := filepath.Join(filepath.Dir(journal), "act")
				if err := os.WriteFile(path, program, 0o755); err != nil { //nolint:gosec // it is run
					t.Fatal(err)
				}
				mine(t, m.uid, journal)
				mine(t, m.uid, filepath.Dir(journal))
				s := served(t, s)
				c.scenes(t, namespace).play(t, s, boxedScenario(s, journal), journal)
			})
		}
	})
	// What is left of the scenes is told to go now: some of their pods would have minutes, and the server waits for them.
	if err := c.removePods(); err != nil {
		t.Error(err)
	}
}

// connect connects to an address of the machine.
func (m *machine) connect(ctx context.Context, network, address string) (net.Conn, error) {
	return insideOf(m, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) })
}
