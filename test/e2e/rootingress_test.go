//go:build rootonly

package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRootIngress leads requests from another machine to pods of images: by host, over HTTP and over HTTPS with the
// certificate of a Secret, and to the default backend. Pods are told who asks. A restart of the server finds all of it
// again.
//
// spec: WORK-4, NET-1
func TestRootIngress(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		far := m.outside(t)
		u := m.imageCluster(t)
		u.flags = []string{"--ingress", "--ingress-http", "192.0.2.1:8080", "--ingress-https", "192.0.2.1:8443"}
		u.begin(t)
		k := u.kubectl(t)
		roots, cert, key := certificateFor(t, "web.example")
		k.ok(t, fmt.Sprintf("create secret tls web --cert=%s --key=%s", cert, key))
		u.apply(t, ingressManifest)
		k.ok(t, "rollout status deployment/web --timeout=2m")
		k.ok(t, "wait --for=condition=Ready pod/other --timeout=2m")
		k.ok(t, "wait --for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.1 ingress/web --timeout=2m")

		client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
			DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
				_, port, _ := net.SplitHostPort(address)
				at := "192.0.2.1:" + map[string]string{"80": "8080", "443": "8443"}[port]
				return inNetwork(far.network(), func() (net.Conn, error) { return net.DialTimeout("tcp", at, patience) })
			},
		}}
		get := func(url string) (string, error) {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				return "", err
			}
			q.Header.Set("X-Forwarded-For", "198.51.100.1") // Which is a lie.
			a, err := client.Do(q)
			if err != nil {
				return "", err
			}
			defer a.Body.Close()
			text, err := io.ReadAll(a.Body)
			return fmt.Sprintf("%d %s", a.StatusCode, text), err
		}
		// The answers are the name of the pod, and the header that it has got.
		becomes := func(url string, want ...string) {
			t.Helper()
			eventually(t, url+" says "+strings.Join(want, ", "), func() (bool, string) {
				text, err := get(url)
				for _, w := range want {
					if !strings.Contains(text, w) {
						return false, fmt.Sprint(text, err)
					}
				}
				return true, ""
			})
		}
		everything := func() {
			t.Helper()
			const from = "X-Forwarded-For: 192.0.2.2\r\n"
			becomes("http://web.example/", "200 web-", "Host: web.example\r\n", "X-Forwarded-Proto: http\r\n", from)
			becomes("https://web.example/", "200 web-", "Host: web.example\r\n", "X-Forwarded-Proto: https\r\n", from)
			becomes("http://web.example/other/page", "200 other\n", "GET /other/page HTTP/1.1\r\n")
			becomes("http://elsewhere.example/", "200 other\n", "Host: elsewhere.example\r\n")
			if _, err := get("https://elsewhere.example/"); err == nil ||
				!strings.Contains(err.Error(), "certificate") {
				t.Errorf("a name without a certificate: %v", err)
			}
		}
		everything()
		u.now.kill(t)
		if _, err := get("http://web.example/"); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("without a server: %v; want a refusal", err)
		}
		u.begin(t)
		everything()
		k.ok(t, "scale deployment web --replicas=0")
		becomes("http://web.example/", "503 ")
		k.ok(t, "delete ingress web")
		becomes("http://web.example/", "200 other\n")
		u.down(t)
	})
}

// certificateFor makes a certificate for a host and its key, in files, and returns what trusts it.
func certificateFor(t *testing.T, host string) (roots *x509.CertPool, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	certFile, keyFile = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for name, data := range map[string][]byte{
		certFile: cert, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return roots, certFile, keyFile
}

// A server says its name and the header of what it has got.
const ingressManifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: script}
data:
  answer: |
    #!/bin/sh
    printf 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n'
    hostname
    while read -r line && test ${#line} -gt 1; do echo "$line"; done
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: localhost/box:1
        command: [sh, -c, 'nc -ll -p 8080 -e /script/answer']
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {tcpSocket: {port: http}, periodSeconds: 1}
        volumeMounts: [{name: script, mountPath: /script}]
      volumes: [{name: script, configMap: {name: script, defaultMode: 0555}}]
---
apiVersion: v1
kind: Pod
metadata: {name: other, labels: {app: other}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: other
    image: localhost/box:1
    command: [sh, -c, 'nc -ll -p 8080 -e /script/answer']
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    volumeMounts: [{name: script, mountPath: /script}]
  volumes: [{name: script, configMap: {name: script, defaultMode: 0555}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec:
  selector: {app: other}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  tls: [{hosts: [web.example], secretName: web}]
  rules:
  - host: web.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}
      - {path: /other, pathType: Prefix, backend: {service: {name: other, port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: default}
spec: {defaultBackend: {service: {name: other, port: {number: 80}}}}
`
