// Package rest_test drives the REST front with real Kubernetes clients: client-go's typed, dynamic, metadata and
// discovery clients, informers, and kubectl when one is installed.
package rest_test

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"monoplane.dev/apiserver/authn"
	front "monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/inproc"
)

type server struct {
	api        *apitest.Server
	handler    *front.Handler
	config     *rest.Config
	kubeconfig string
}

func asAdmin(_ http.ResponseWriter, r *http.Request) *http.Request {
	u := &authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup, authn.AuthenticatedGroup}}
	return r.WithContext(authn.WithUser(r.Context(), u))
}

// newServer starts a front and writes a kubeconfig for it.
func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{api: apitest.Start(t)}
	h, err := front.New(front.Config{
		Conn: s.api.Conn(nil, inproc.PassValues()), Authenticate: asAdmin, Version: "1.36.3+monoplane",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.handler = h
	hs := httptest.NewUnstartedServer(h)
	hs.EnableHTTP2 = true
	hs.StartTLS()
	t.Cleanup(func() { h.Close(); hs.Close() })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hs.Certificate().Raw})
	s.config = &rest.Config{Host: hs.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	kc := api.NewConfig()
	kc.Clusters["c"] = &api.Cluster{Server: hs.URL, CertificateAuthorityData: ca}
	kc.AuthInfos["u"] = &api.AuthInfo{Token: "t"}
	kc.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u", Namespace: "default"}
	kc.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*kc, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return s
}
