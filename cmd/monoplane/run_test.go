package main

import (
	"os"
	"strings"
	"testing"

	"monoplane.dev"
)

// A cluster that ends by itself, or before its pods have stopped, says what becomes of them.
func TestEndSaysWhatBecomesOfPods(t *testing.T) {
	cluster, err := monoplane.Start(t.Context(), monoplane.Config{DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	interrupted := make(chan os.Signal, 1)
	interrupted <- os.Interrupt
	for name, signals := range map[string]chan os.Signal{"by itself": nil, "Ctrl-C": interrupted} {
		var out strings.Builder
		running{cluster: cluster, signals: signals, stdout: &out}.untilStopped(t.Context())
		if !strings.Contains(out.String(), "Leaving the pods running") {
			t.Errorf("%s: it said %q", name, out.String())
		}
	}
}
