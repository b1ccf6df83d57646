package monoplane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/store/seal"
)

// Two data directories that share an etcd share its nodes: a copy never takes one by itself, be it simulated, and once
// somebody has confirmed that the original is dead, that one does not get it back.
//
// spec: SAFE-5, NODE-7
func TestCopyOnTheSameEtcd(t *testing.T) {
	endpoint, cert := etcdOverTLS(t)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(cert)
	config := func(dir string) monoplane.Config {
		return monoplane.Config{
			DataDir: dir, Runtime: monoplane.FakeRuntime(), NodeName: "node",
			EtcdEndpoints: []string{endpoint}, EtcdTLS: &tls.Config{RootCAs: trusted},
		}
	}
	original, copied := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
	first := start(t, config(original))
	create(t, first.Client(), newPod("p"))
	if err := waitFor(t.Context(), first.Client(), "p", running); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", original, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	refused := func(dir, why string) {
		t.Helper()
		c, err := monoplane.Start(t.Context(), config(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WaitReady(t.Context()); !errors.Is(err, monoplane.ErrNodeRefused) ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%v, want ErrNodeRefused because %s", err, why)
		}
		if _, err := c.Client().Pods.List(t.Context(), &metav1.ListRequest{Namespace: "default"}); err != nil {
			t.Errorf("the API of a refused node: %v", err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	refused(copied, "copied")
	another := filepath.Join(t.TempDir(), "new")
	if c, err := monoplane.Start(t.Context(), config(another)); !errors.Is(err, seal.ErrMissing) {
		t.Fatalf("without the keys of Secrets: %v, %v", c, err)
	}
	key, err := os.ReadFile(filepath.Join(original, seal.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(another, seal.FileName), key, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(another, "the same etcd")
	if err := first.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	refused(copied, "copied")

	confirmed := config(copied)
	confirmed.ConfirmOriginalDead = true
	log := &lines{}
	confirmed.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))
	c := start(t, confirmed)
	if want := "audit=break-glass user=\"\" what=confirm-original-dead node=node"; !strings.Contains(log.String(), want) {
		t.Errorf("the audit lacks %q: %s", want, log)
	}
	remove(t, c.Client(), "p", nil) // the pod is its own: only a node's agent ends one
	if err := waitFor(t.Context(), c.Client(), "p", gone); err != nil {
		t.Error(err)
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	refused(original, "the same etcd")
	start(t, config(copied))
}

// A first start that an older version did not finish left an empty key. Nothing has been registered with it.
func TestEmptyMachineKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "machine-key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c := start(t, monoplane.Config{DataDir: dir})
		if err := c.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	// There was, and is, nothing to confirm.
	cfg := monoplane.Config{DataDir: dir, Runtime: monoplane.FakeRuntime(), NodeName: "node", ConfirmOriginalDead: true}
	if c, err := monoplane.Start(t.Context(), cfg); err == nil {
		t.Error("a confirmation that confirms nothing was accepted", c.Stop(context.Background()))
	}
}
