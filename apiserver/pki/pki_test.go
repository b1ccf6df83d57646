package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/yaml"

	"monoplane.dev/internal/datadir"
)

func ensure(t *testing.T, dir string, opts Options) *Bundle {
	t.Helper()
	b, err := Ensure(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func leaf(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("no PEM block")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEnsureMakesFilesThatOnlyTheOwnerReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	ensure(t, dir, Options{})
	want := map[string]fs.FileMode{
		".": 0o700, "ca.crt": 0o600, "ca.key": 0o600, "admin.crt": 0o600, "admin.key": 0o600, "admin.token": 0o600,
		".lock": 0o600,
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(want)-1 {
		t.Errorf("files %v, want those of %v", entries, want)
	}
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", name, info.Mode().Perm(), mode)
		}
	}
}

func TestEnsureKeepsWhatItMade(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a, b := ensure(t, dir, Options{}), ensure(t, dir, Options{})
	if string(a.CA()) != string(b.CA()) || string(a.Admin().Key) != string(b.Admin().Key) ||
		a.AdminToken() != b.AdminToken() {
		t.Error("a second start made new secrets")
	}
	if len(a.AdminToken()) < 64 {
		t.Errorf("token %q is short", a.AdminToken())
	}
}

func TestConcurrentStartsAgree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	const n = 8
	bundles := make([]*Bundle, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			b, err := Ensure(dir, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			bundles[i] = b
		})
	}
	wg.Wait()
	for _, b := range bundles {
		if b == nil || string(b.CA()) != string(bundles[0].CA()) ||
			string(b.Admin().Cert) != string(bundles[0].Admin().Cert) ||
			b.AdminToken() != bundles[0].AdminToken() {
			t.Fatal("concurrent starts made different secrets")
		}
	}
}

func TestRefusesWhatOthersCanRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("running as root; modes are checked all the same")
	}
	for _, name := range []string{".", "ca.key", "admin.key", "admin.token"} {
		dir := filepath.Join(t.TempDir(), "pki")
		ensure(t, dir, Options{})
		path := filepath.Join(dir, name)
		if err := os.Chmod(path, 0o744); err != nil {
			t.Fatal(err)
		}
		_, err := Ensure(dir, Options{})
		if err == nil || !strings.Contains(err.Error(), "chmod") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s readable by others: error %v, want one line with a remedy", name, err)
		}
	}
}

func TestRefusesDamage(t *testing.T) {
	other := filepath.Join(t.TempDir(), "pki")
	ensure(t, other, Options{})
	foreign := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, c := range []struct {
		what, file string
		data       []byte // nil removes the file
	}{
		{"lost CA certificate", "ca.crt", nil},
		{"lost CA key", "ca.key", nil},
		{"empty CA certificate", "ca.crt", []byte{}},
		{"overwritten CA certificate", "ca.crt", []byte("\x00\x01garbage")},
		{"CA key of another authority", "ca.key", foreign("ca.key")},
		{"truncated CA key", "ca.key", foreign("ca.key")[:40]},
		{"two certificates", "ca.crt", append(foreign("ca.crt"), foreign("ca.crt")...)},
		{"CA that is none", "ca.crt", foreign("admin.crt")},
		{"lost admin key", "admin.key", nil},
		{"admin key of another", "admin.key", foreign("admin.key")},
		{"bad token", "admin.token", []byte("short\n")},
	} {
		dir := filepath.Join(t.TempDir(), "pki")
		ensure(t, dir, Options{})
		path := filepath.Join(dir, c.file)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if c.data != nil {
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Ensure(dir, Options{})
		if err == nil || !strings.Contains(err.Error(), c.file) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line that names %s", c.what, err, c.file)
		}
		if now, readErr := os.ReadFile(path); readErr == nil && string(now) != string(c.data) {
			t.Errorf("%s: the file was changed", c.what)
		}
	}
}

func TestFirstStartCanBeCutShort(t *testing.T) {
	// Whatever prefix of the files a crash leaves, the next start succeeds.
	full := filepath.Join(t.TempDir(), "pki")
	ensure(t, full, Options{})
	order := []string{"ca.key", "ca.crt", "admin.key", "admin.crt", "admin.token"}
	for n := range order {
		dir := filepath.Join(t.TempDir(), "pki")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range order[:n] {
			data, err := os.ReadFile(filepath.Join(full, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := ensure(t, dir, Options{})
		if err := leaf(t, b.Admin().Cert).CheckSignatureFrom(leaf(t, b.CA())); err != nil {
			t.Errorf("after %v: %v", order[:n], err)
		}
	}
}

func TestAdminIsRenewedAndAnExpiredAuthorityRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) Options { return Options{Now: func() time.Time { return start.Add(d) }} }
	day := 24 * time.Hour
	first := ensure(t, dir, at(0))
	if again := ensure(t, dir, at(200*day)); string(again.Admin().Cert) != string(first.Admin().Cert) {
		t.Error("the certificate was renewed with more than a third of its life left")
	}
	renewed := ensure(t, dir, at(300*day))
	if c := leaf(t, renewed.Admin().Cert); !c.NotAfter.After(start.Add(600 * day)) {
		t.Errorf("after 300 days the certificate is valid until %v", c.NotAfter)
	}
	if string(renewed.CA()) != string(first.CA()) {
		t.Error("the authority changed")
	}
	if _, err := Ensure(dir, at(11*365*day)); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("expired authority: %v", err)
	}
}

// handshake connects to the bundle's server over a pipe and returns the certificate that it showed.
func handshake(t *testing.T, b *Bundle, now time.Time, name string) (*x509.Certificate, error) {
	t.Helper()
	c, s := net.Pipe()
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	go func() { _ = tls.Server(s, b.ServerTLS()).Handshake() }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.CA())
	client := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: name, Time: func() time.Time { return now },
		NextProtos: []string{"h2"}})
	if err := client.Handshake(); err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

func TestServerCertificateIsRenewedWhileRunning(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := ensure(t, filepath.Join(t.TempDir(), "pki"), Options{Now: func() time.Time { return now },
		Names: []string{"api.example.com", "10.1.2.3"}})
	var serials []string
	for range 3 {
		c, err := handshake(t, b, now, "api.example.com")
		if err != nil {
			t.Fatal(err)
		}
		serials = append(serials, c.SerialNumber.String())
		now = now.Add(15 * 24 * time.Hour)
	}
	if serials[0] != serials[1] || serials[1] == serials[2] {
		t.Errorf("serials after 0, 15 and 30 days: %v, want the third to be new", serials)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "10.1.2.3"} {
		if _, err := handshake(t, b, now, name); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if _, err := handshake(t, b, now, "other.example.com"); err == nil {
		t.Error("the certificate is valid for a name that was not asked for")
	}
	const later = "10.244.0.1"
	if _, err := handshake(t, b, now, later); err == nil {
		t.Errorf("the certificate is valid for %s before that is known", later)
	}
	for range 2 {
		b.Cover(netip.MustParseAddr(later))
		c, err := handshake(t, b, now, later)
		if err != nil {
			t.Fatalf("as %s: %v", later, err)
		}
		serials = append(serials, c.SerialNumber.String())
	}
	if serials[3] != serials[4] {
		t.Error("an address that the certificate is valid for has made another one")
	}
}

// A server that runs for years renews what is in its files, so that at every moment the files fit, are valid, and are
// accepted; whoever has kept the old ones is accepted as long as they are valid.
func TestKeepRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pki")
		b := ensure(t, dir, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		var writes atomic.Int64
		ended := make(chan error, 1)
		go func() {
			ended <- b.KeepRenewed(ctx, func() error {
				if writes.Add(1) == 2 {
					return errors.New("the disk is full")
				}
				return b.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), Endpoints{REST: "https://127.0.0.1:1"})
			})
		}()
		const day = 24 * time.Hour
		read := func(name string) string {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		first := b.Admin()
		time.Sleep(240 * day)
		if writes.Load() != 0 || read("admin.crt") != string(first.Cert) {
			t.Error("renewed with more than a third of its life left")
		}
		time.Sleep(10 * day)
		second := b.Admin()
		if writes.Load() != 1 || string(second.Cert) == string(first.Cert) || read("admin.crt") != string(second.Cert) {
			t.Fatalf("%d renewals after 250 days", writes.Load())
		}
		if !strings.Contains(read("kubeconfig"), base64.StdEncoding.EncodeToString(second.Cert)) {
			t.Error("the kubeconfig has another certificate")
		}
		accepted := func(what string, cert []byte) {
			t.Helper()
			usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			if _, err := leaf(t, cert).Verify(x509.VerifyOptions{Roots: b.ClientCAs(), KeyUsages: usages}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		accepted("the old certificate", first.Cert)

		// The second time the kubeconfig cannot be written; an hour later it can.
		time.Sleep(245 * day)
		if n := writes.Load(); n < 3 || n > 4 {
			t.Errorf("%d writes, of which the second failed", n)
		}
		if !strings.Contains(read("kubeconfig"), base64.StdEncoding.EncodeToString(b.Admin().Cert)) {
			t.Error("the kubeconfig was not written again")
		}

		ca, before := b.CA(), b.Admin()
		for range 7 * 52 {
			time.Sleep(7 * day)
			if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "admin.crt"), filepath.Join(dir, "admin.key")); err != nil {
				t.Fatal(err)
			}
			accepted("the certificate in the file", []byte(read("admin.crt")))
			if string(b.CA()) != string(ca) {
				break
			}
			before = b.Admin()
		}
		if string(b.CA()) == string(ca) || read("ca.crt") != string(b.CA()) {
			t.Fatal("the authority's certificate was not renewed")
		}
		if c := leaf(t, b.CA()); time.Until(c.NotAfter) < 9*365*day {
			t.Errorf("the authority is valid until %v", c.NotAfter)
		}
		accepted("a certificate from before the authority's renewal", before.Cert)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		server, err := b.ServerTLS().GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost"}); err != nil {
			t.Errorf("a client that knows the former certificate of the authority: %v", err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// The next start goes on with what is there.
		if again := ensure(t, dir, Options{}); string(again.CA()) != string(b.CA()) ||
			string(again.Admin().Cert) != string(b.Admin().Cert) {
			t.Error("the next start made others")
		}
	})
}

// A clock that is set back, as on a machine that learns the time after its first start, leaves nobody out: who trusts
// the authority trusts the server at once, and within ten minutes there is an administrator's certificate that is
// valid. An authority of a time to come gets a certificate that is valid, with the same key.
func TestClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wrong time.Duration
		now := func() time.Time { return time.Now().Add(-wrong) }
		b := ensure(t, filepath.Join(t.TempDir(), "pki"), Options{Now: now})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		written := b.Admin().Cert
		go func() { ended <- b.KeepRenewed(ctx, func() error { written = b.Admin().Cert; return nil }) }()
		first := b.CA()
		for _, wrong = range []time.Duration{2 * time.Hour, 300 * 24 * time.Hour, 3 * 365 * 24 * time.Hour} {
			authorityLasts := wrong < caBackdate
			if _, err := handshake(t, b, now(), "localhost"); err != nil && authorityLasts {
				t.Errorf("%v back, the server: %v", wrong, err)
			}
			time.Sleep(renewEvery + time.Second)
			synctest.Wait()
			if _, err := handshake(t, b, now(), "localhost"); err != nil {
				t.Errorf("%v back, the server, later: %v", wrong, err)
			}
			if string(b.CA()) == string(first) != authorityLasts {
				t.Errorf("%v back: the authority's certificate is the first one: %v", wrong, !authorityLasts)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(b.CA())
			_, err := leaf(t, written).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			if err != nil {
				t.Errorf("%v back, the administrator: %v", wrong, err)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestBadServerNames(t *testing.T) {
	for _, name := range []string{"", "0.0.0.0", "::", "a b", "-x", "https://x"} {
		if _, err := Ensure(filepath.Join(t.TempDir(), "pki"), Options{Names: []string{name}}); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
}

func TestIssue(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := ensure(t, filepath.Join(t.TempDir(), "pki"), Options{Now: func() time.Time { return now }})
	id, err := b.Issue("system:node:n1", []string{"system:nodes"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := leaf(t, id.Cert)
	if c.Subject.CommonName != "system:node:n1" || len(c.Subject.Organization) != 1 ||
		!c.NotAfter.Equal(now.Add(time.Hour)) {
		t.Errorf("subject %v, until %v", c.Subject, c.NotAfter)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: b.ClientCAs(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: b.ClientCAs(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client certificate can be used by a server")
	}
	if _, err := tls.X509KeyPair(id.Cert, id.Key); err != nil {
		t.Error(err)
	}
	for _, ttl := range []time.Duration{0, -1, 100 * 365 * 24 * time.Hour} {
		if _, err := b.Issue("x", nil, ttl); err == nil {
			t.Errorf("a life of %v was accepted", ttl)
		}
	}
	if _, err := b.Issue("", nil, time.Hour); err == nil {
		t.Error("a certificate without a name was made")
	}
}

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	b := ensure(t, filepath.Join(dir, "pki"), Options{})
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.WriteKubeconfig(path, Endpoints{REST: "https://127.0.0.1:6443", GRPC: "127.0.0.1:6444"}); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, error %v, want 0600", info.Mode(), err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		CurrentContext string `json:"current-context"`
		Clusters       []struct {
			Name    string
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != "monoplane" || config.Clusters[0].Cluster.Server != "https://127.0.0.1:6443" ||
		string(config.Clusters[0].Cluster.CA) != string(b.CA()) ||
		string(config.Users[0].User.Key) != string(b.Admin().Key) {
		t.Errorf("unexpected kubeconfig: %+v", config)
	}
	if _, err := tls.X509KeyPair(config.Users[0].User.Cert, config.Users[0].User.Key); err != nil {
		t.Error(err)
	}
	for _, u := range []string{"", "http://x", "https://", "https://x/\"\n", "127.0.0.1:6443"} {
		if err := b.WriteKubeconfig(path, Endpoints{REST: u}); err == nil {
			t.Errorf("URL %q was accepted", u)
		}
	}
}

// What somebody else has put into the directory is refused, by root too, and a link is not followed.
func TestForeignFiles(t *testing.T) {
	for _, name := range []string{"ca.crt", "ca.key", "admin.crt", "admin.key", "admin.token", ".lock"} {
		dir, away := filepath.Join(t.TempDir(), "pki"), filepath.Join(t.TempDir(), "away")
		ensure(t, dir, Options{})
		path := filepath.Join(dir, name)
		if err := os.Rename(path, away); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(away, path); err != nil {
			t.Fatal(err)
		}
		var unsafe *datadir.UnsafeError
		if _, err := Ensure(dir, Options{}); !errors.As(err, &unsafe) || unsafe.Path != path {
			t.Errorf("%s is a link: %v", name, err)
		}
		if os.Geteuid() != 0 {
			continue // nothing can be given away
		}
		if err := os.Rename(away, path); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{path, dir} {
			if err := os.Lchown(p, 54321, 54321); err != nil {
				t.Fatal(err)
			}
			if _, err := Ensure(dir, Options{}); !errors.As(err, &unsafe) || unsafe.Path != p ||
				!strings.Contains(err.Error(), "54321") {
				t.Errorf("%s belongs to another user: %v", p, err)
			}
			if err := os.Lchown(p, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}
