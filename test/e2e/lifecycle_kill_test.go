package e2e_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
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
	kills    = flag.Int("kills", 6, "how many scenarios of pods are played while the server is killed, chosen at random")
	killSeed = flag.Uint64("killseed", 0, "the seed of their choice and of the moments; random when 0")
)

// TestLifecycleUnderKills plays scenarios while the server is killed and started again at random moments: nothing runs
// twice, nothing is lost, no grace is cut.
// spec: SAFE-1, SAFE-2, DEL-10, DEL-13
func TestLifecycleUnderKills(t *testing.T) {
	t.Parallel()
	program := binary(t, "act")
	all, err := lifecycle.All("host")
	if err != nil {
		t.Fatal(err)
	}
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	t.Logf("seed %d", seed)
	choose := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	for i := range *kills {
		s := all[choose.IntN(len(all))]
		moments := rand.New(rand.NewPCG(seed, uint64(i)+1)) //nolint:gosec // repeatable on purpose
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			journal := newJournal(t)
			m := &mortal{dir: shortDir(t), program: binary(t, "monoplane")}
			m.live(t)
			s := served(t, s)
			m.play(t, s.Disturbed(), s.Real("host", program, journal), journal, moments)
		})
	}
}

// mortal is a cluster that dies and comes back on the same directory.
type mortal struct {
	dir, program string

	mu  sync.Mutex
	now *cluster
}

// live starts the cluster, whose last life ends with the test.
func (m *mortal) live(t *testing.T) {
	t.Helper()
	if err := m.restart(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.now.end(); err != nil {
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
	}
	c, err := start(m.program, m.dir)
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

func (m *mortal) play(t *testing.T, s *lifecycle.Scenario, pod *corev1.Pod, journal string, moments *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sceneTime)
	defer cancel()
	pod.Name = s.Name
	seen := &lifecycle.History{}
	go readMarks(ctx, journal, seen)
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
