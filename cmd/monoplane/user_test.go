package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monoplane.dev/apiserver/pki"
	"monoplane.dev/client"
)

// spec: OBJ-15
func TestUser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	bundle, err := pki.Ensure(filepath.Join(dir, "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		var out strings.Builder
		root := newRootCommand(programName, &out, &out)
		root.SetArgs(append([]string{"user", "--data-dir", dir}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if _, err := run("jane", "-o", "-"); err == nil || !strings.Contains(err.Error(), "no cluster in") {
		t.Errorf("before the cluster was started: %v", err)
	}
	at := pki.Endpoints{REST: "https://127.0.0.1:6443", GRPC: "127.0.0.1:6444"}
	if err := bundle.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), at); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jane")
	out, err := run("jane", "--group", "a", "--group", "b", "-o", path)
	if err != nil || !strings.Contains(out, "kubeconfig of user jane") {
		t.Fatalf("%q, %v", out, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	cfg, err := client.LoadConfig(path)
	if err != nil || cfg.Address != at.GRPC {
		t.Fatalf("the kubeconfig: %+v, %v", cfg, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pki.EndpointsOf(data); err != nil || got != at {
		t.Errorf("it is for %+v, %v", got, err)
	}
	chain := cfg.TLS.Certificates[0].Certificate
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil || cert.Subject.CommonName != "jane" || !slices.Equal(cert.Subject.Organization, []string{"a", "b"}) {
		t.Errorf("the certificate is for %v, %v", cert.Subject, err)
	}
	ca, _ := pem.Decode(bundle.CA())
	authority, err := x509.ParseCertificate(ca.Bytes)
	if err != nil || cert.CheckSignatureFrom(authority) != nil {
		t.Errorf("it is not signed by the cluster's authority: %v", err)
	}
	for _, args := range [][]string{
		{"jane", "-o", path}, {"system:node:n"}, {"a/b"}, {""}, {"jane", "--duration", "-1s", "-o", "-"}, {},
	} {
		if _, err := run(args...); err == nil {
			t.Errorf("%q succeeds", args)
		}
	}
}
