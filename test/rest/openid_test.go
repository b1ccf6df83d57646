package rest_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monoplane.dev"
)

// as sends a bearer token with every request.
type as struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.next.RoundTrip(r)
}

// Who knows OpenID Connect verifies tokens by what the server publishes, and nobody reads that without credentials.
func TestOpenID(t *testing.T) {
	const issuer = "https://kubernetes.default.svc.cluster.local"
	cluster, err := monoplane.Start(t.Context(), monoplane.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Runtime: monoplane.FakeRuntime(), UnsafeNoFsync: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if err := cluster.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	accounts := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts("kube-system")
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "builder"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	issue := func(audiences ...string) string {
		r, err := accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status.Token
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(config.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	// The server is not where its issuer says, as in Kubernetes: who verifies says so.
	known := oidc.InsecureIssuerURLContext(
		oidc.ClientContext(t.Context(), &http.Client{Transport: as{issue(), transport}}), issuer)
	provider, err := oidc.NewProvider(known, config.Host)
	if err != nil {
		t.Fatal(err)
	}
	verifier := provider.Verifier(&oidc.Config{ClientID: "vault", SupportedSigningAlgs: []string{oidc.ES256}})
	verified, err := verifier.Verify(known, issue("vault"))
	if err != nil || verified.Subject != "system:serviceaccount:kube-system:builder" || verified.Issuer != issuer {
		t.Errorf("verified %v, error %v", verified, err)
	}
	if _, err := verifier.Verify(known, issue("other")); err == nil {
		t.Error("a token for somebody else was verified")
	}
	unknown := oidc.InsecureIssuerURLContext(
		oidc.ClientContext(t.Context(), &http.Client{Transport: as{"", transport}}), issuer)
	if _, err := oidc.NewProvider(unknown, config.Host); err == nil {
		t.Error("the documents are shown to anybody")
	}
}
