// Package signing is what the server, which judges requests for certificates, and the controller that signs them have
// to agree on: how a request is read, which usages there are, and the words for decisions.
package signing

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	certificatesv1 "monoplane.dev/api/certificates/v1"
)

// Client is the name of the signer whose certificates show the server who a user is.
const Client = "kubernetes.io/kube-apiserver-client"

// The decisions, as types of conditions.
const (
	Approved = "Approved"
	Denied   = "Denied"
	Failed   = "Failed"
)

// ClientAuth is the usage without which a certificate does not show who a user is.
const ClientAuth = "client auth"

// keyUsages and extendedUsages are the words for usages. Some mean the same.
var (
	keyUsages = map[string]x509.KeyUsage{
		"signing": x509.KeyUsageDigitalSignature, "digital signature": x509.KeyUsageDigitalSignature,
		"content commitment": x509.KeyUsageContentCommitment, "key encipherment": x509.KeyUsageKeyEncipherment,
		"key agreement": x509.KeyUsageKeyAgreement, "data encipherment": x509.KeyUsageDataEncipherment,
		"cert sign": x509.KeyUsageCertSign, "crl sign": x509.KeyUsageCRLSign,
		"encipher only": x509.KeyUsageEncipherOnly, "decipher only": x509.KeyUsageDecipherOnly,
	}
	extendedUsages = map[string]x509.ExtKeyUsage{
		"any": x509.ExtKeyUsageAny, "server auth": x509.ExtKeyUsageServerAuth, ClientAuth: x509.ExtKeyUsageClientAuth,
		"code signing": x509.ExtKeyUsageCodeSigning, "email protection": x509.ExtKeyUsageEmailProtection,
		"s/mime": x509.ExtKeyUsageEmailProtection, "ipsec end system": x509.ExtKeyUsageIPSECEndSystem,
		"ipsec tunnel": x509.ExtKeyUsageIPSECTunnel, "ipsec user": x509.ExtKeyUsageIPSECUser,
		"timestamping": x509.ExtKeyUsageTimeStamping, "ocsp signing": x509.ExtKeyUsageOCSPSigning,
		"microsoft sgc": x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		"netscape sgc":  x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
)

// Usages returns all words for usages.
func Usages() []string {
	return slices.Sorted(maps.Keys(func() map[string]bool {
		all := make(map[string]bool)
		for u := range keyUsages {
			all[u] = true
		}
		for u := range extendedUsages {
			all[u] = true
		}
		return all
	}()))
}

// Known says whether a word is one for a usage.
func Known(usage string) bool {
	_, key := keyUsages[usage]
	_, extended := extendedUsages[usage]
	return key || extended
}

// Parse reads a request, a PEM block, and checks that it is signed with its own key.
func Parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return r, r.CheckSignature()
}

// Has says whether something was decided.
func Has(o *certificatesv1.CertificateSigningRequest, decision string) bool {
	return Condition(o, decision) != nil
}

// Condition returns the condition of a decision; nil when there is none.
func Condition(
	o *certificatesv1.CertificateSigningRequest, decision string,
) *certificatesv1.CertificateSigningRequestCondition {
	for _, c := range o.GetStatus().GetConditions() {
		if c.GetType() == decision {
			return c
		}
	}
	return nil
}

const (
	// backdate allows for clients whose clocks are behind.
	backdate = 5 * time.Minute
	// short is the life below which a certificate ends as late as it was asked for, whatever backdate takes from it.
	short = 8 * time.Hour
	// shortest is the least life of a certificate.
	shortest = 10 * time.Minute
	// longest is the life of a certificate of which nothing is asked.
	longest = 365 * 24 * time.Hour
)

// ClientTemplate returns what a certificate for the server's own clients has of a request, without serial number. The
// error says why there can be none.
func ClientTemplate(spec *certificatesv1.CertificateSigningRequestSpec, now time.Time) (*x509.Certificate, error) {
	r, err := Parse(spec.GetRequest())
	if err != nil {
		return nil, err
	}
	for _, u := range spec.GetUsages() {
		if u != ClientAuth && u != "digital signature" && u != "key encipherment" {
			return nil, fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(spec.GetUsages(), ClientAuth) {
		return nil, fmt.Errorf("missing required usage for client certificate: %s", ClientAuth)
	}
	life := longest
	if spec.ExpirationSeconds != nil {
		life = min(max(time.Duration(*spec.ExpirationSeconds)*time.Second, shortest), longest)
	}
	ends := now.Add(life)
	if life >= short {
		ends = ends.Add(-backdate)
	}
	t := &x509.Certificate{
		Subject: r.Subject, DNSNames: r.DNSNames, EmailAddresses: r.EmailAddresses, IPAddresses: r.IPAddresses, URIs: r.URIs,
		PublicKey: r.PublicKey, PublicKeyAlgorithm: r.PublicKeyAlgorithm, BasicConstraintsValid: true,
		NotBefore: now.Add(-backdate), NotAfter: ends,
	}
	for _, u := range spec.GetUsages() {
		if key, ok := keyUsages[u]; ok {
			t.KeyUsage |= key
		} else {
			t.ExtKeyUsage = append(t.ExtKeyUsage, extendedUsages[u])
		}
	}
	return t, nil
}
