package e2e_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"monoplane.dev/test/lifecycle"
)

var (
	kills = flag.Int("kills", 0,
		"how many scenarios of pods are played while the server is killed, chosen at random; 0: a few that are short")
	killSeed = flag.Uint64("killseed", 0, "the seed of their choice and of the moments; random when 0")
)

// TestLifecycleUnderKills plays scenarios while the server is killed and started again at random moments: nothing runs
// twice, nothing is lost, no grace is cut.
// spec: SAFE-1, SAFE-2, DEL-10, DEL-13
func TestLifecycleUnderKills(t *testing.T) {
	t.Parallel()
	program := binary(t, "act")
	playUnderKills(t, "host", 6, func(t *testing.T, s *lifecycle.Scenario) staged {
		t.Helper()
		journal := newJournal(t)
		m := newMortal(t, shortDir(t))
		m.live(t)
		return staged{m, s.Real("host", program, journal), journal}
	})
}

// staged is what a scenario is played with: a cluster that lives, the scenario's pod, and the file of its marks.
type staged struct {
	*mortal

	pod     *corev1.Pod
	journal string
}

// playUnderKills plays scenarios for a runtime, each on a cluster of its own, which stage makes: as many as -kills
// says, or, without it, a few of those that are short.
func playUnderKills(t *testing.T, runtime string, few int, stage func(*testing.T, *lifecycle.Scenario) staged) {
	t.Helper()
	all, err := lifecycle.All(runtime)
	if err != nil {
		t.Fatal(err)
	}
	count := *kills
	if count == 0 {
		count = few
		all = slices.DeleteFunc(all, func(s *lifecycle.Scenario) bool { return s.Lasts() > shortScene })
	}
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	t.Logf("seed %d", seed)
	var died atomic.Int64
	choose := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	// Once all of them have ended.
	t.Cleanup(func() { t.Logf("%d scenarios, %d kills", count, died.Load()) })
	for i := range count {
		s := all[choose.IntN(len(all))]
		moments := rand.New(rand.NewPCG(seed, uint64(i)+1)) //nolint:gosec // repeatable on purpose
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s := served(t, s)
			on := stage(t, s)
			on.play(t, s.Disturbed(), moments)
			died.Add(on.deaths)
		})
	}
}

// shortScene is how long the scenarios of a few may let time pass.
const shortScene = 5 * time.Second

// mortal is a cluster that dies and comes back on the same directory.
type mortal struct {
	begin func() (*cluster, error)
	// last is the signal that ends its last life.
	last syscall.Signal
	// deaths counts how often it has been killed.
	deaths int64

	mu  sync.Mutex
	now *cluster
}

// newMortal returns one whose containers are processes of this machine.
func newMortal(t *testing.T, dir string) *mortal {
	t.Helper()
	program := binary(t, "monoplane")
	return &mortal{begin: func() (*cluster, error) { return start(program, dir) }, last: syscall.SIGTERM}
}

// live starts the cluster, whose last life ends with the test, when nothing is left of its pods: the object of one
// that is deleted by force has gone before its volumes.
func (m *mortal) live(t *testing.T) {
	t.Helper()
	if err := m.restart(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.now.removePods(), m.now.withoutPodData(), m.now.endBy(m.last)); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("stderr of the last cluster ends with:\n%s", m.now.stderr.tail(40))
		}
	})
}

func (m *mortal) restart() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != nil {
		_ = m.now.proc.Kill() // it may have ended
		<-m.now.exited
		m.deaths++
	}
	c, err := m.begin()
	if err != nil {
		return err
	}
	m.now = c
	return nil
}

// client returns clients of the present life.
func (m *mortal) client() (*kubernetes.Clientset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	config, err := m.now.clientConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// try calls f with clients until it succeeds, or says that it never will.
func (m *mortal) try(ctx context.Context, f func(*kubernetes.Clientset) error) error {
	for {
		client, err := m.client()
		if err == nil {
			err = f(client)
		}
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond) // the server is away
	}
}

func (on staged) play(t *testing.T, s *lifecycle.Scenario, moments *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sceneTime)
	defer cancel()
	m, pod := on.mortal, on.pod
	pod.Name = s.Name
	seen := &lifecycle.History{}
	go readMarks(ctx, on.journal, seen)
	err := m.try(ctx, func(c *kubernetes.Clientset) error {
		_, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go m.follow(ctx, pod.Name, seen)
	playing, played := context.WithCancel(ctx)
	died := make(chan error, 1)
	go func() { died <- m.die(playing, moments) }()
	if err := s.Run(ctx, onMortal{m, pod.Name}, seen); err != nil {
		t.Error(err)
	}
	played()
	if err := <-died; err != nil {
		t.Fatal(err)
	}
}

// die kills the server and starts it again, up to five times, until ctx ends.
func (m *mortal) die(ctx context.Context, moments *rand.Rand) error {
	for range 5 {
		select {
		case <-time.After(time.Duration(moments.IntN(1200)) * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
		if err := m.restart(); err != nil {
			return err
		}
	}
	return nil
}

// follow shows the pod as each life of the server tells it.
func (m *mortal) follow(ctx context.Context, name string, seen *lifecycle.History) {
	last := ""
	for ctx.Err() == nil {
		client, err := m.client()
		if err != nil {
			continue
		}
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && p.ResourceVersion != last:
			last = p.ResourceVersion
			seen.Saw(p)
		case apierrors.IsNotFound(err):
			seen.Saw(nil)
			return
		}
		time.Sleep(10 * time.Millisecond) // watches end with the server: it is asked instead
	}
}

// onMortal is a scenario's view of a cluster that dies.
type onMortal struct {
	*mortal

	name string
}

// Delete implements lifecycle.Driver.
func (m onMortal) Delete(ctx context.Context, graceSeconds *int64) error {
	err := m.try(ctx, func(c *kubernetes.Clientset) error {
		return c.CoreV1().Pods("default").Delete(ctx, m.name, metav1.DeleteOptions{GracePeriodSeconds: graceSeconds})
	})
	if apierrors.IsNotFound(err) {
		return nil // an earlier try was carried out
	}
	return err
}

// Patch implements lifecycle.Driver.
func (m onMortal) Patch(ctx context.Context, subresource string, patch []byte) error {
	return m.try(ctx, func(c *kubernetes.Clientset) error {
		_, err := c.CoreV1().Pods("default").Patch(ctx, m.name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, subresource)
		return err
	})
}

// Events implements lifecycle.Driver; under kills none are asked for.
func (m onMortal) Events(context.Context) ([]string, error) { return nil, nil }
