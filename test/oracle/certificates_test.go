package oracle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	k8score "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/certificates"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	certificatesvalidation "k8s.io/kubernetes/pkg/apis/certificates/validation"

	oc "monoplane.dev/api/certificates/v1"
	ourcertificates "monoplane.dev/apiserver/kinds/certificates"
)

func TestCertificateSigningRequestsAreJudgedAlike(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "eve"}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := func() *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: "kubernetes.io/kube-apiserver-client", ExpirationSeconds: ptr(int32(600)),
				Usages: []certificatesv1.KeyUsage{"client auth", "digital signature"},
			},
			Status: certificatesv1.CertificateSigningRequestStatus{
				Conditions: []certificatesv1.CertificateSigningRequestCondition{
					{Type: "Approved", Status: k8score.ConditionTrue, Reason: "a"},
				},
			},
		}
	}
	r, bad := random(t), 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := csr(), csr()
		what := alter(r, k, 1+r.IntN(3), nil)
		if r.IntN(4) == 0 {
			k.Spec.SignerName = pick(r, []string{
				"", "a", "a/b", "a.b/c/d", "a.b/C", "a_.b/c", "a.b/c.d", "kubernetes.io/legacy-unknown",
			})
		}
		now := internal(t, k, &certificates.CertificateSigningRequest{})
		was := internal(t, old, &certificates.CertificateSigningRequest{})
		o, before := mustOurs(t, k, &oc.CertificateSigningRequest{}), mustOurs(t, old, &oc.CertificateSigningRequest{})
		ourcertificates.DefaultCertificateSigningRequest(o)
		ourcertificates.DefaultCertificateSigningRequest(before)
		created := compare(theirFaults(certificatesvalidation.ValidateCertificateSigningRequestCreate(now)),
			ourFaults(ourcertificates.ValidateCertificateSigningRequest(o)))
		updated := compare(theirFaults(certificatesvalidation.ValidateCertificateSigningRequestUpdate(now, was)),
			ourFaults(ourcertificates.ValidateCertificateSigningRequestUpdate(o, before)))
		approved := compare(theirFaults(certificatesvalidation.ValidateCertificateSigningRequestApprovalUpdate(now, was)),
			ourFaults(ourcertificates.ValidateCertificateSigningRequestApproval(o, before)))
		signed := compare(theirFaults(certificatesvalidation.ValidateCertificateSigningRequestStatusUpdate(now, was)),
			ourFaults(ourcertificates.ValidateCertificateSigningRequestStatus(o, before)))
		if report(t, append(what, "create"), onlyMeta(created)) || report(t, append(what, "update"), onlyMeta(updated)) ||
			report(t, append(what, "approval"), onlyMeta(approved)) || report(t, append(what, "status"), onlyMeta(signed)) {
			bad++
		}
	}
}
