package criconfig_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/criconfig"
)

func service(namespace, name, ip string, ports ...*corev1.ServicePort) *corev1.Service {
	return &corev1.Service{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: &corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

// announcing returns facts by which pods see these Services.
func announcing(services ...*corev1.Service) criconfig.Facts {
	f := facts
	f.Content.Services = func() ([]*corev1.Service, error) { return services, nil }
	return f
}

// Pods are told of the Services that have an address and ports.
//
// spec: LIFE-8
func TestServicesAreAnnounced(t *testing.T) {
	f := announcing(
		service("ns", "my-db", "10.0.0.9", &corev1.ServicePort{Name: "sql-1", Protocol: "TCP", Port: 5432},
			&corev1.ServicePort{Name: "stats", Protocol: "UDP", Port: 9}),
		service("ns", "headless", "None", &corev1.ServicePort{Port: 1}), service("ns", "external", ""),
		service("ns", "six", "fd00::1", &corev1.ServicePort{Port: 80}), service("ns", "portless", "10.0.0.8"),
	)
	got, err := environment(pod(), f)
	want := "MY_DB_SERVICE_HOST=10.0.0.9 MY_DB_SERVICE_PORT=5432 " +
		"MY_DB_SERVICE_PORT_SQL_1=5432 MY_DB_SERVICE_PORT_STATS=9 MY_DB_PORT=tcp://10.0.0.9:5432 " +
		"MY_DB_PORT_5432_TCP=tcp://10.0.0.9:5432 MY_DB_PORT_5432_TCP_PROTO=tcp MY_DB_PORT_5432_TCP_PORT=5432 " +
		"MY_DB_PORT_5432_TCP_ADDR=10.0.0.9 MY_DB_PORT_9_UDP=udp://10.0.0.9:9 MY_DB_PORT_9_UDP_PROTO=udp " +
		"MY_DB_PORT_9_UDP_PORT=9 MY_DB_PORT_9_UDP_ADDR=10.0.0.9 " +
		"SIX_SERVICE_HOST=fd00::1 SIX_SERVICE_PORT=80 SIX_PORT=tcp://[fd00::1]:80 SIX_PORT_80_TCP=tcp://[fd00::1]:80 " +
		"SIX_PORT_80_TCP_PROTO=tcp SIX_PORT_80_TCP_PORT=80 SIX_PORT_80_TCP_ADDR=fd00::1"
	if err != nil || got != want {
		t.Errorf("%s, %v; want\n%s", got, err, want)
	}
}

// What the container says itself goes before the Services, and may refer to them.
//
// spec: LIFE-8, CTR-7
func TestContainersGoBeforeServices(t *testing.T) {
	f := announcing(service("ns", "db", "10.0.0.9", &corev1.ServicePort{Port: 1}))
	var l lookups
	f.Content.ConfigMap = l.content().ConfigMap
	p := pod(&corev1.EnvVar{Name: "URL", Value: "http://$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)"},
		&corev1.EnvVar{Name: "DB_SERVICE_HOST", Value: "mine, not $(DB_SERVICE_HOST)"},
		&corev1.EnvVar{Name: "AFTER", Value: "$(DB_SERVICE_HOST)"})
	p.Spec.Containers[0].EnvFrom = []*corev1.EnvFromSource{allOfConfigMap("DB_SERVICE_PORT_", "c", false),
		allOfConfigMap("DB_PORT_1_TCP_", "c", false)}
	p.Spec.Containers[0].Args = []string{"$(DB_PORT)"}
	cfg, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range cfg.GetEnvs() {
		if _, twice := got[v.GetKey()]; twice {
			t.Errorf("%s is there twice", v.GetKey())
		}
		got[v.GetKey()] = string(v.GetValue())
	}
	for name, want := range map[string]string{
		"URL": "http://10.0.0.9:1", "DB_SERVICE_HOST": "mine, not 10.0.0.9", "AFTER": "mine, not 10.0.0.9",
		"DB_SERVICE_PORT": "1", "DB_SERVICE_PORT_a": "1", "DB_PORT_1_TCP_a": "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if a := cfg.GetArgs()[0]; a != "tcp://10.0.0.9:1" {
		t.Errorf("the argument is %q", a)
	}
}

// The API server is announced by its own address: not by that of its Service, and not when the namespace has another
// of the name.
//
// spec: LIFE-8
func TestServicesAndTheAPI(t *testing.T) {
	port := &corev1.ServicePort{Name: "https", Port: 443}
	for _, x := range []struct {
		service   *corev1.Service
		host, tls string
	}{
		{service("default", "kubernetes", "10.0.0.1", port), "10.0.0.5", "6443"},
		{service("ns", "other", "10.0.0.1", port), "10.0.0.5", "6443"},
		{service("ns", "kubernetes", "None", port), "10.0.0.5", "6443"},
		{service("ns", "kubernetes", "10.0.0.1", &corev1.ServicePort{Port: 1}), "10.0.0.1", ""},
	} {
		f := announcing(x.service)
		f.Content.API = netip.MustParseAddrPort("10.0.0.5:6443")
		got, err := environment(pod(), f)
		got = " " + got + " "
		if err != nil || !strings.Contains(got, " KUBERNETES_SERVICE_HOST="+x.host+" ") ||
			strings.Contains(got, "KUBERNETES_SERVICE_PORT_HTTPS=6443 ") != (x.tls != "") {
			t.Errorf("beside %v: %s, %v", x.service, got, err)
		}
	}
}

// Pods that want no links are told of the API server only, and need nothing to be looked up.
//
// spec: LIFE-8
func TestNoServiceLinks(t *testing.T) {
	f := facts
	f.Content.API = netip.MustParseAddrPort("10.0.0.5:6443")
	f.Content.Services = func() ([]*corev1.Service, error) { return nil, errDown }
	p := pod()
	if _, err := environment(p, f); !errors.Is(err, errDown) ||
		!strings.HasPrefix(err.Error(), "failed to list services when setting up env vars: ") {
		t.Errorf("without knowing the Services: %v", err)
	}
	links := false
	p.Spec.EnableServiceLinks = &links
	if got, err := environment(p, f); err != nil || !strings.HasPrefix(got, "KUBERNETES_SERVICE_HOST=10.0.0.5 ") {
		t.Errorf("without links: %q, %v", got, err)
	}
}
