package main

import (
	"testing"

	"monoplane.dev"
)

// Ingresses are served only for who asks for that, and then on the loopback unless somebody says otherwise.
func TestIngressIsOff(t *testing.T) {
	for _, c := range []struct {
		args []string
		want monoplane.IngressConfig
	}{
		{nil, monoplane.IngressConfig{}},
		{[]string{"--ingress"}, monoplane.IngressConfig{HTTP: "127.0.0.1:8080", HTTPS: "127.0.0.1:8443"}},
		{[]string{"--ingress", "--ingress-http", "0.0.0.0:80", "--ingress-https", ""},
			monoplane.IngressConfig{HTTP: "0.0.0.0:80"}},
	} {
		cfg, _, err := upConfig(t, append(c.args, "--runtime", "fake", "--data-dir", t.TempDir())...)
		if err != nil || cfg.Ingress != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.args, cfg.Ingress, err, c.want)
		}
	}
}
