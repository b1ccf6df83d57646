package client

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodKubeconfig = `
apiVersion: v1
kind: Config
current-context: monoplane
contexts:
- name: monoplane
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster:
    server: https://127.0.0.1:6443
    extensions:
    - name: monoplane.dev/grpc
      extension: {address: "127.0.0.1:6444"}
users:
- name: u
  user: {token: secret}
`

func TestLoadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(goodKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Address != "127.0.0.1:6444" || cfg.Token != "secret" || cfg.TLS == nil {
		t.Errorf("got %+v", cfg)
	}
}

func TestBadKubeconfigs(t *testing.T) {
	rubbish := base64.StdEncoding.EncodeToString([]byte("rubbish"))
	for name, tc := range map[string]struct{ old, new, want string }{
		"not yaml":   {goodKubeconfig, "\tx: [", "yaml"},
		"context":    {"current-context: monoplane", "current-context: other", `no context "other"`},
		"cluster":    {"cluster: c,", "cluster: d,", "not there"},
		"base64":     {"server:", "certificate-authority-data: '%%'\n    server:", "certificate-authority-data"},
		"ca":         {"server:", "certificate-authority-data: " + rubbish + "\n    server:", "no PEM certificate"},
		"cert":       {"token: secret", "client-certificate-data: " + rubbish, "client certificate"},
		"file":       {"token: secret", "client-certificate: none.pem", "none.pem"},
		"token file": {"token: secret", "tokenFile: none", "none"},
		"address":    {"127.0.0.1:6444", "127.0.0.1", "missing port"},
	} {
		_, err := parseKubeconfig([]byte(strings.Replace(goodKubeconfig, tc.old, tc.new, 1)), t.TempDir())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
	if _, err := Dial(t.Context(), Config{}); err == nil {
		t.Error("dialled without an address")
	}
	if _, err := Dial(t.Context(), Config{Address: "x:1", Token: "t"}); err == nil {
		t.Error("sent a token without TLS")
	}
}
