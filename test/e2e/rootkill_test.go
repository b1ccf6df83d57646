//go:build rootonly

package e2e_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/test/lifecycle"
)

var (
	runtimeKills = flag.Int("runtimekills", 6,
		"how many scenarios of pods are played while containerd is killed, chosen at random")
	runtimeKillSeed = flag.Uint64("runtimekillseed", 0, "the seed of their choice and of the moments; random when 0")
)

// TestRootContainerdUnderKills plays scenarios while containerd is killed and started again at random moments: nothing
// runs twice, nothing is lost, no grace is cut, and pods that run are adopted as they are.
// spec: SAFE-1, SAFE-4, DEL-10, NODE-2
func TestRootContainerdUnderKills(t *testing.T) {
	t.Parallel()
	seed := *runtimeKillSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	t.Logf("seed %d", seed)
	ctd := newContainerd(t)
	c := startIn(t, shortDir(t), "--runtime-endpoint", ctd.Endpoint())
	c.playDisturbed(t, *runtimeKills, seed, ctd.die)
	c.adoptsAtOnce(t, ctd)
}

// playDisturbed plays some scenarios, chosen at random, a few at a time, so that each meets several disturbances and
// the machine has time for them. Disturb disturbs the runtime until its context ends, and mends it before it returns.
func (c *cluster) playDisturbed(
	t *testing.T, count int, seed uint64, disturb func(ctx context.Context, moments *rand.Rand) error,
) {
	t.Helper()
	found, err := lifecycle.All("containerd")
	if err != nil {
		t.Fatal(err)
	}
	var all []*lifecycle.Scenario
	for _, s := range found {
		if cut, ok := s.CutOff(); ok {
			all = append(all, cut)
		}
	}
	programs := newBoxedPrograms(t)
	choose := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	for left, round := count, uint64(1); left > 0; round++ {
		var chosen []*lifecycle.Scenario
		for range min(left, 4) {
			s := all[choose.IntN(len(all))]
			if !slices.Contains(chosen, s) {
				chosen = append(chosen, s)
			}
		}
		left -= len(chosen)
		namespace := c.namespace(t)
		p := c.pods(t, namespace)
		neighbour := p.run(t, boxed("neighbour", countsBox))
		playing, played := context.WithCancel(t.Context())
		died := make(chan error, 1)
		moments := rand.New(rand.NewPCG(seed, round)) //nolint:gosec // repeatable on purpose
		go func() { died <- disturb(playing, moments) }()
		t.Run("round", func(t *testing.T) {
			for _, s := range chosen {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					journal := programs.newJournal(t, 0)
					c.scenes(t, namespace).play(t, s, boxedScenario(s, journal), journal)
				})
			}
		})
		played()
		if err := <-died; err != nil {
			t.Fatal(err)
		}
		p.wentOn(t, neighbour)
	}
}

// wentOn checks that a pod, which counts, has run all the time as one process.
func (p pods) wentOn(t *testing.T, before *corev1.Pod) {
	t.Helper()
	now := p.untilPhase(t, before.Name, corev1.PodRunning)
	was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID ||
		is.RestartCount != 0 || is.State.Running == nil {
		t.Errorf("%s was %v and is %v", before.Name, was, is)
	}
	p.wantNoGap(t, before.Name)
	p.delete(t, before.Name, -1)
	p.untilGone(t, before)
}

// die kills containerd and starts it again, up to five times, until ctx ends.
func (c *daemon) die(ctx context.Context, moments *rand.Rand) error {
	for range 5 {
		select {
		case <-time.After(time.Duration(500+moments.IntN(2500)) * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
		if err := c.Kill(); err != nil {
			return err
		}
		// It comes back also when what is played has just ended.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		err := c.Start(limited)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// adoptsAtOnce shows that a pod that runs goes on as it is when containerd comes back, or another server comes, and
// says how long it took until the node was ready again.
func (c *cluster) adoptsAtOnce(t *testing.T, ctd *daemon) {
	t.Helper()
	p := c.pods(t, c.namespace(t))
	before := p.run(t, boxed("stays", countsBox))
	ready := func(c *cluster) corev1.ConditionStatus {
		nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 1 {
			t.Fatal(nodes, err)
		}
		for _, cond := range nodes.Items[0].Status.Conditions {
			if cond.Type == corev1.NodeReady {
				return cond.Status
			}
		}
		return ""
	}
	// The longer it is away, the longer a back-off would have grown.
	for range 2 {
		ctd.kill(t)
		eventually(t, "the node is not ready", func() (bool, string) { return ready(c) == corev1.ConditionFalse, "" })
		ctd.start(t)
		began := time.Now()
		eventually(t, "the node is ready", func() (bool, string) { return ready(c) == corev1.ConditionTrue, "" })
		t.Logf("adopted %s after containerd answers", time.Since(began).Round(time.Millisecond))
	}
	c.kill(t)
	began := time.Now()
	next := startIn(t, c.dir, "--runtime-endpoint", ctd.Endpoint())
	started := time.Now()
	eventually(t, "the node is ready", func() (bool, string) { return ready(next) == corev1.ConditionTrue, "" })
	t.Logf("adopted %s after the next server says that it has started, %s after it began",
		time.Since(started).Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	next.pods(t, before.Namespace).wentOn(t, before)
}
