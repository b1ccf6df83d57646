package monoplane_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/store/test/etcdtest"
)

// etcdOverTLS runs an etcd on the loopback interface and returns its URL and the certificate that it shows.
func etcdOverTLS(t *testing.T) (endpoint string, cert []byte) {
	t.Helper()
	e := etcdtest.StartWith(t, func(cfg *embed.Config) {
		cfg.ListenClientUrls = []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}
		cfg.ClientAutoTLS, cfg.SelfSignedCertValidity = true, 1
	})
	cert, err := os.ReadFile(filepath.Join(e.Config().Dir, "fixtures", "client", "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + e.Clients[0].Addr().String(), cert
}

// A cluster keeps its objects in an etcd that others run, and finds them there again.
func TestExternalEtcd(t *testing.T) {
	endpoint, cert := etcdOverTLS(t)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(cert)
	config := monoplane.Config{
		DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), NodeName: "node",
		EtcdEndpoints: []string{endpoint}, EtcdTLS: &tls.Config{RootCAs: trusted},
	}
	first, err := monoplane.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	created, err := first.Client().Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Namespace: "default",
		Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: "kept"},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "busybox"}}},
		}})
	if err != nil {
		t.Error(err)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := start(t, config)
	p, err := second.Client().Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "kept"})
	if err != nil || p.GetMetadata().GetUid() != created.GetMetadata().GetUid() {
		t.Errorf("after a restart: %v, %v", p, err)
	}
}

func TestExternalEtcdThatIsNotTrusted(t *testing.T) {
	endpoint, _ := etcdOverTLS(t)
	c, err := monoplane.Start(t.Context(), monoplane.Config{
		DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), EtcdEndpoints: []string{endpoint},
		EtcdTLS: &tls.Config{RootCAs: x509.NewCertPool()},
	})
	if err == nil {
		t.Fatal(c.Stop(t.Context()), "started on an etcd that it does not trust")
	}
	if !strings.Contains(err.Error(), endpoint) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error does not say in one line which etcd: %v", err)
	}
}
