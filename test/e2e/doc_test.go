// Package e2e_test drives the real bin/monoplane from outside, as its users do: with an unmodified kubectl, with
// client-go, over gRPC, and with plain HTTP requests like curl's.
//
// Tests that only need some cluster share one, each in a namespace of its own (shared, (*cluster).namespace);
// tests that kill, stop or damage a cluster start theirs (newCluster). Every wait for a real process goes
// through eventually. At the end of a cluster no process of it may be left.
//
// The package builds nothing: `make build kubectl` comes first.
package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestMain runs the tests, most of which wait rather than compute, and ends the shared cluster.
func TestMain(m *testing.M) {
	if address := os.Getenv(serveVariable); address != "" {
		must(serveHTTP(address))
		return
	}
	must(flag.Set("test.parallel", "8"))
	code := m.Run()
	if err := theShared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "shared cluster:", err)
		code = 1
	}
	os.Exit(code)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// binary returns the path of a program in bin/.
func binary(tb testing.TB, name string) string {
	tb.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%s is missing: run `make build kubectl` first", path)
	}
	return path
}

// example returns the path of a file in examples/.
func example(tb testing.TB, name string) string {
	tb.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "examples", name))
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// sharedCluster is started by the first test that asks for it.
type sharedCluster struct {
	mu      sync.Mutex
	cluster *cluster
	err     error
}

var theShared sharedCluster

// shared returns the cluster that tests share. They leave its nodes as they found them.
func shared(t *testing.T) *cluster {
	t.Helper()
	s := &theShared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil && s.err == nil {
		var dir string
		if dir, s.err = os.MkdirTemp("", "mp-e2e-"); s.err == nil {
			s.cluster, s.err = start(binary(t, "monoplane"), filepath.Join(dir, "data"))
		}
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	c := s.cluster
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stderr of the shared cluster ends with:\n%s", c.stderr.tail(40))
		}
	})
	return c
}

func (s *sharedCluster) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		return s.err
	}
	err := s.cluster.end()
	return firstError(err, os.RemoveAll(filepath.Dir(s.cluster.dir)))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
