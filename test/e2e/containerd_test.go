//go:build rootonly

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"monoplane.dev/test/containerd"
)

// daemon is a real containerd of a test's own, and what it has to say.
type daemon struct {
	*containerd.Daemon
	log *capture
}

// oneContainerd is held as long as a containerd runs: the pods of each have addresses of the same range, on the
// machine's network.
var oneContainerd sync.Mutex

// newContainerd starts a containerd with the images of the tests, once no other one runs. Its end fails the test if
// something still runs in it.
func newContainerd(t *testing.T) *daemon {
	t.Helper()
	if err := containerd.Missing(); err != nil {
		t.Fatal(err)
	}
	oneContainerd.Lock()
	t.Cleanup(oneContainerd.Unlock)
	dir := filepath.Join(filepath.Dir(shortDir(t)), "containerd")
	d, err := containerd.New(dir, fmt.Sprintf("mp-e2e-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	c := &daemon{d, &capture{}}
	d.Env, d.Log = environment(), c.log
	t.Cleanup(func() {
		if err := c.End(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("containerd's warnings end with:\n%s", c.log.tail(40, "level=info"))
		}
	})
	c.start(t)
	return c
}

// start starts the daemon and waits until it answers.
func (c *daemon) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// kill ends the daemon as a crash would. What it runs goes on.
func (c *daemon) kill(t *testing.T) {
	t.Helper()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
}
