//go:build rootonly

package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/test/lifecycle"
)

// How many of the scenarios of a pod's life are drawn for images and for containerd, and by which seed.
var (
	imageScenes     = flag.Int("imagescenes", 12, "how many scenarios are played with images and on containerd; 0: all")
	imageScenesSeed = flag.Uint64("imagescenesseed", 0, "which; 0: at random")
)

// TestRootImageLifecycle plays scenarios of package lifecycle with containers of an image and a network of their own,
// as root.
func TestRootImageLifecycle(t *testing.T) {
	t.Parallel()
	playOnImages(t, newMachine(t), "oci")
}

// TestRootUserImageLifecycle does so as a user who is not root, with nothing installed and nothing allowed.
func TestRootUserImageLifecycle(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.uid = unprivileged
	playOnImages(t, m, "oci-user")
}

// drawScenes returns the scenarios that are played on a runtime: some of its own, at random, or all.
func drawScenes(t *testing.T, runtime string) []*lifecycle.Scenario {
	t.Helper()
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
	return all
}

func playOnImages(t *testing.T, m *machine, runtime string) {
	t.Helper()
	programs := newBoxedPrograms(t)
	drawn := drawScenes(t, runtime)
	c := m.imageCluster(t).begin(t)
	c.dialer = m.connect
	namespace := c.namespace(t)
	t.Run("scenes", func(t *testing.T) {
		for _, s := range drawn {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				journal := programs.newJournal(t, m.uid)
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

// TestRootImageLifecycleUnderKills plays scenarios with containers of an image while the server is killed and started
// again at random moments, as TestLifecycleUnderKills does with processes.
//
// spec: SAFE-1, DEL-10, CTR-6
func TestRootImageLifecycleUnderKills(t *testing.T) {
	t.Parallel()
	programs := newBoxedPrograms(t)
	playUnderKills(t, "oci", 2, func(t *testing.T, s *lifecycle.Scenario) staged {
		t.Helper()
		u := newMachine(t).imageCluster(t)
		journal := programs.newJournal(t, u.machine.uid)
		begin := func() (*cluster, error) {
			c, err := u.start()
			if err == nil {
				c.dialer = u.machine.connect
			}
			return c, err
		}
		m := &mortal{begin: begin, last: syscall.SIGINT}
		t.Cleanup(func() { u.leftNoMounts(t) }) // Once the last life has ended.
		m.live(t)
		t.Cleanup(func() { u.leftNoRoots(t, m.now) })
		return staged{m, boxedScenario(s, journal), journal}
	})
}

// leftNoRoots removes all pods, and checks that their root file systems go, too.
func (u *imageCluster) leftNoRoots(t *testing.T, c *cluster) {
	t.Helper()
	if err := c.removePods(); err != nil {
		t.Error(err)
	}
	err := poll(patience, func() (bool, string) {
		left, err := os.ReadDir(filepath.Join(u.images, "roots"))
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
	if err != nil {
		t.Errorf("root file systems are left: %v", err)
	}
}

// leftNoMounts checks that nothing of the cluster is mounted on the machine.
func (u *imageCluster) leftNoMounts(t *testing.T) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, u.home) {
			t.Errorf("a mount is left: %s", line)
		}
	}
}

// TestRootImageBadInput plays the scenarios of bad input with containers of an image and registries on their machine,
// each beside a neighbour that goes on, and pulls images for pods, as root.
//
// spec: CTR-6
func TestRootImageBadInput(t *testing.T) {
	t.Parallel()
	playBadOnImages(t, newMachine(t), "oci")
}

// TestRootUserImageBadInput does so as a user who is not root.
//
// spec: CTR-6
func TestRootUserImageBadInput(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.uid = unprivileged
	playBadOnImages(t, m, "oci-user")
}

func playBadOnImages(t *testing.T, m *machine, runtime string) {
	t.Helper()
	all, err := lifecycle.Bad(runtime)
	if err != nil {
		t.Fatal(err)
	}
	images, err := newRegistry()
	if err != nil {
		t.Fatal(err)
	}
	u := m.imageCluster(t)
	registries := m.newPullRegistries(t)
	u.flags = []string{"--registry-config", registries.file}
	c := u.begin(t)
	c.dialer = m.connect
	namespace := c.namespace(t)
	t.Run("scenes", func(t *testing.T) {
		for _, s := range all {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				b := newBoxedBad(t, c, namespace, images, m.reserve)
				b.uid = m.uid
				mine(t, m.uid, b.journal)
				mine(t, m.uid, b.places.Place)
				b.playBoxed(t, s)
			})
		}
		t.Run("pulls", func(t *testing.T) {
			t.Parallel()
			registries.pulls(t, c, namespace)
		})
		t.Run("no shell", func(t *testing.T) {
			t.Parallel()
			k := u.kubectl(t)
			k.namespace = namespace
			registries.noShell(t, c.scenes(t, namespace), k)
		})
	})
	if err := c.removePods(); err != nil {
		t.Error(err)
	}
}

// reserve reserves a port of the machine's 127.0.0.1.
func (m *machine) reserve(t *testing.T) *reserved {
	t.Helper()
	return reserveFor(t, func() (int, error) { return insideOf(m, newSocket) })
}

// connect connects to an address of the machine.
func (m *machine) connect(ctx context.Context, network, address string) (net.Conn, error) {
	return insideOf(m, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) })
}
