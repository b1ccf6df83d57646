package monoplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Simulated pods go on over an orderly restart, as real ones do: nothing is restarted and nothing is written.
func TestSimulatedPodsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := start(t, monoplane.Config{DataDir: dir, Nodes: 2})
		for _, name := range []string{"a", "b", "short"} {
			p := newPod(name)
			if name == "short" {
				p.Spec.RestartPolicy = "Never"
				p.Metadata.Annotations = map[string]string{"fake.monoplane.dev/exit-after": "1m"}
			}
			create(t, c.Client(), p)
			if err := waitFor(t.Context(), c.Client(), name, running); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		before, err := c.Client().Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}

		c = start(t, monoplane.Config{DataDir: dir, Nodes: 2})
		time.Sleep(30 * time.Second) // virtual
		after, err := c.Client().Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if b, a := before.GetMetadata().GetResourceVersion(), after.GetMetadata().GetResourceVersion(); a != b {
			t.Errorf("the pod was written again: revision %s, then %s: %v", b, a, after.GetStatus())
		}
		done := func(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Succeeded" }
		if err := waitFor(t.Context(), c.Client(), "short", done); err != nil {
			t.Fatal(err)
		}
		remove(t, c.Client(), "a", nil)
		if err := waitFor(t.Context(), c.Client(), "a", gone); err != nil {
			t.Fatal(err)
		}
	})
}
