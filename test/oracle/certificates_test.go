package oracle

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	k8score "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	oc "monoplane.dev/api/certificates/v1"
	ourcertificates "monoplane.dev/apiserver/kinds/certificates"
)

// requestOfEve asks for a certificate of user eve.
const requestOfEve = `-----BEGIN CERTIFICATE REQUEST-----
MIHIMHACAQAwDjEMMAoGA1UEAxMDZXZlMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD
QgAERo5sJdYG0D4YxYJYO4eCeT2u3n0htkhxldrUT21WxsypsW21pzE/4iKj28Fn
sMqj3tHXeih4xlCGJPR8cl3XjKAAMAoGCCqGSM49BAMCA0gAMEUCIQDv0+soS4Zj
snftd8z7GxiESIXlIroMJPrjFLwmIjjBBwIgEAKkUQHb8H/xb5DWyf00NMJ5PwL4
Q+StL1fClVygzz4=
-----END CERTIFICATE REQUEST-----
`

// requestVerdict has what is wrong with an approval, too.
type requestVerdict struct {
	verdict
	Approved faults
}

func TestCertificateSigningRequestsAreJudgedAlike(t *testing.T) {
	csr := func() *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    []byte(requestOfEve),
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
		theirs := ask[requestVerdict](t, "certificate-signing-requests", k, old)
		o, before := mustOurs(t, k, &oc.CertificateSigningRequest{}), mustOurs(t, old, &oc.CertificateSigningRequest{})
		ourcertificates.DefaultCertificateSigningRequest(o)
		ourcertificates.DefaultCertificateSigningRequest(before)
		created := compare(theirs.Created,
			ourFaults(ourcertificates.ValidateCertificateSigningRequest(o)))
		updated := compare(theirs.Updated,
			ourFaults(ourcertificates.ValidateCertificateSigningRequestUpdate(o, before)))
		approved := compare(theirs.Approved,
			ourFaults(ourcertificates.ValidateCertificateSigningRequestApproval(o, before)))
		signed := compare(theirs.Status,
			ourFaults(ourcertificates.ValidateCertificateSigningRequestStatus(o, before)))
		if report(t, append(what, "create"), onlyMeta(created)) || report(t, append(what, "update"), onlyMeta(updated)) ||
			report(t, append(what, "approval"), onlyMeta(approved)) || report(t, append(what, "status"), onlyMeta(signed)) {
			bad++
		}
	}
}
