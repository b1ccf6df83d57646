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
	"os/exec"
	"path/filepath"
	"strings"
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

// The kubeconfig that `monoplane user` writes is the user's, of the groups that were named, who may do nothing but ask
// who it is until a role says so: one of the group, or one of the user.
// spec: CLI-2
func TestKubeconfigOfAUser(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	user, dir := "jane-"+ns, t.TempDir()
	write := func() (output string, code int) {
		cmd := exec.CommandContext(t.Context(), binary(t, "monoplane"), "user", user, "--group", "ops-"+ns,
			"--data-dir", c.dir)
		cmd.Dir, cmd.Env = dir, environment()
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := write(); code != 0 || !strings.HasPrefix(out, user+".kubeconfig is the kubeconfig of user "+user) {
		t.Fatalf("code %d: %s", code, out)
	}
	file := filepath.Join(dir, user+".kubeconfig")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if out, code := write(); code != 1 || !strings.Contains(out, "file exists") {
		t.Errorf("over a file that is there: code %d, %s", code, out)
	}
	admin, jane := c.kubectl(t, ns), newKubectl(t, file, ns)
	jane.tour(t, []step{
		{line: "auth whoami", want: []string{`^Username +` + user + `$`,
			`^Groups +\[ops-` + ns + ` system:authenticated\]$`}},
		{line: "auth can-i get configmaps", code: 1, want: []string{`^no$`}},
		{line: "get configmaps", code: 1, want: []string{`User "` + user + `" cannot list resource "configmaps"`}},
	})
	admin.ok(t, "create rolebinding ops --clusterrole=view --group=ops-"+ns)
	jane.tour(t, []step{
		{line: "get configmaps", want: []string{`^kube-root-ca.crt `}},
		{line: "create configmap a", code: 1, want: []string{`User "` + user + `" cannot create resource "configmaps"`}},
	})
	admin.ok(t, "create rolebinding jane --clusterrole=edit --user="+user)
	jane.tour(t, []step{
		{line: "create configmap a", want: []string{`^configmap/a created$`}},
		{line: "delete configmap a", want: []string{`deleted`}},
		{line: "create rolebinding more --clusterrole=admin --user=" + user, code: 1,
			want: []string{`cannot create resource "rolebindings"`}},
		{line: "get nodes", code: 1, want: []string{`User "` + user + `" cannot list resource "nodes"`}},
	})
}
