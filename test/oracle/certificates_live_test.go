//go:build kubernetes

package oracle

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/kubernetes/pkg/apis/certificates"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	"k8s.io/kubernetes/pkg/apis/certificates/validation"
)

func theirRequest(t testing.TB, k, old *certificatesv1.CertificateSigningRequest) requestVerdict {
	now := internal(t, k, &certificates.CertificateSigningRequest{})
	was := internal(t, old, &certificates.CertificateSigningRequest{})
	return requestVerdict{
		verdict: verdict{
			Created: theirFaults(validation.ValidateCertificateSigningRequestCreate(now)),
			Updated: theirFaults(validation.ValidateCertificateSigningRequestUpdate(now, was)),
			Status:  theirFaults(validation.ValidateCertificateSigningRequestStatusUpdate(now, was)),
		},
		Approved: theirFaults(validation.ValidateCertificateSigningRequestApprovalUpdate(now, was)),
	}
}
