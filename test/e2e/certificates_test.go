package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A user asks for a certificate, an administrator approves it with kubectl, and the certificate is the user's, who may
// do what a role binding gives.
func TestCertificateOfAUser(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	k := c.kubectl(t, ns)
	user, dir := "carol-"+ns, t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{"ops"}}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	asked := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	manifest := write("csr.yaml", []byte("apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\n"+
		"metadata: {name: "+user+"}\nspec:\n  signerName: kubernetes.io/kube-apiserver-client\n  expirationSeconds: 3600\n"+
		"  usages: [client auth]\n  request: "+asked+"\n"))
	k.tour(t, []step{
		{line: "create clusterrole asks-" + user + " --verb=create,get --resource=certificatesigningrequests",
			want: []string{`created`}},
		{line: "create clusterrolebinding asks-" + user + " --clusterrole=asks-" + user + " --user=" + user,
			want: []string{`created`}},
		{line: "--as=" + user + " --as-group=ops create -f " + manifest, want: []string{`created`}},
		{line: "get csr " + user, want: []string{`SIGNERNAME +REQUESTOR +REQUESTEDDURATION +CONDITION`,
			`kubernetes.io/kube-apiserver-client +` + user + ` +60m +Pending`}},
		{line: "--as=" + user + " certificate approve " + user, code: 1, want: []string{`Forbidden`}},
		{line: "certificate approve " + user, want: []string{`approved`}},
		{line: "wait --for=jsonpath={.status.certificate} csr/" + user, want: []string{`condition met`}},
		{line: "get csr " + user, want: []string{`Approved,Issued`}},
		{line: "create rolebinding " + user + " --clusterrole=view --user=" + user, want: []string{`created`}},
	})
	o, err := c.client(t).CertificatesV1().CertificateSigningRequests().Get(t.Context(), user, metav1.GetOptions{})
	if err != nil || len(o.Status.Certificate) == 0 || o.Spec.Username != user {
		t.Fatalf("%+v, %v", o, err)
	}
	block, _ := pem.Decode(o.Status.Certificate)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || time.Until(cert.NotAfter) > time.Hour {
		t.Errorf("the certificate ends on %v, %v", cert.NotAfter, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := write("user.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	as := " --client-certificate=" + write("user.crt", o.Status.Certificate) + " --client-key=" + keyFile
	k.tour(t, []step{
		{line: "auth whoami" + as, want: []string{`Username +` + user, `ops`}},
		{line: "get configmaps" + as, want: []string{`kube-root-ca.crt`}},
		{line: "get secrets" + as, code: 1, want: []string{`User "` + user + `" cannot list resource "secrets"`}},
		{line: "delete clusterrolebinding,clusterrole asks-" + user, want: []string{`deleted`}},
	})
}
