package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"monoplane.dev/controllers/ingress/certs"
)

func selfSigned(t *testing.T) *tls.Certificate {
	t.Helper()
	c, err := certs.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNamesChoose(t *testing.T) {
	a, wild, late, byDefault := selfSigned(t), selfSigned(t), selfSigned(t), selfSigned(t)
	entries := []certs.Entry{
		{Hosts: []string{"a.example", "B.example"}, Certificate: a},
		{Hosts: []string{"*.example", "a.example"}, Certificate: wild},
		{Hosts: []string{"*.example"}, Certificate: late},
	}
	s := certs.New(entries, byDefault)
	for name, want := range map[string]*tls.Certificate{
		"a.example": a, "A.Example.": a, "b.example": a, "c.example": wild, "d.c.example": byDefault, "example": byDefault,
		"": byDefault, "10.0.0.1": byDefault,
	} {
		if s.For(name) != want {
			t.Errorf("%q is shown another certificate than the one for it", name)
		}
	}
	if certs.New(append(entries, certs.Entry{Certificate: late}), byDefault).For("elsewhere") != late {
		t.Error("an entry without hosts is not for all names")
	}
}

// What is wrong with a Secret is said without what is in it.
func TestParse(t *testing.T) {
	c := selfSigned(t)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	got, err := certs.Parse(map[string][]byte{"tls.crt": cert, "tls.key": key})
	if err != nil || string(got.Certificate[0]) != string(c.Certificate[0]) {
		t.Fatal(got, err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(selfSigned(t).PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string]map[string][]byte{
		`no data["tls.crt"]`: {"tls.key": key},
		`no data["tls.key"]`: {"tls.crt": cert},
		`failed to find`:     {"tls.crt": []byte("secret words"), "tls.key": key},
		`does not match`: {"tls.crt": cert, "tls.key": pem.EncodeToMemory(
			&pem.Block{Type: "PRIVATE KEY", Bytes: other})},
	} {
		_, err := certs.Parse(data)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret words") {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
