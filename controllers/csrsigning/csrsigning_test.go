package csrsigning_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/csrcleaner"
	"monoplane.dev/controllers/csrsigning"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/signing"

	certificatesv1 "monoplane.dev/api/certificates/v1"
	certificatesv1rpc "monoplane.dev/api/certificates/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
	rbacv1rpc "monoplane.dev/api/rbac/v1/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type request = certificatesv1.CertificateSigningRequest

// asking returns a request for a certificate for a subject.
func asking(t *testing.T, name, signer, subject string, groups []string, usages ...string) *request {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: subject, Organization: groups},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &request{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer, Usages: usages, ExpirationSeconds: proto.Int32(3600),
		},
	}
}

// world runs both controllers on a server where user "eve" may make requests, and no more.
func world(t *testing.T, f func(t *testing.T, s *apitest.Server, bundle *pki.Bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		bundle, err := pki.Ensure(filepath.Join(t.TempDir(), "pki"), pki.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		shared := controller.NewShared(s.Controller(controller.SharedRole().Name), nil)
		signer, err := csrsigning.New(csrsigning.Config{
			Client: s.Controller("csrsigning"), Shared: shared, Sign: bundle.Sign,
		})
		if err != nil {
			t.Fatal(err)
		}
		cleaner, err := csrcleaner.New(csrcleaner.Config{Client: s.Controller("csrcleaner"), Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- controllertest.Run(ctx, shared, signer, cleaner) }()
		grant(t, s.Admin(), "eve", &rbacv1.PolicyRule{Verbs: []string{"create", "get"},
			ApiGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}})
		f(t, s, bundle)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the controllers ended with %v", err)
		}
	})
}

func grant(t *testing.T, c *client.Client, user string, rules ...*rbacv1.PolicyRule) {
	t.Helper()
	_, err := c.ClusterRoles.Create(t.Context(), &rbacv1rpc.CreateClusterRoleRequest{Object: &rbacv1.ClusterRole{
		Metadata: &metav1.ObjectMeta{Name: user}, Rules: rules,
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ClusterRoleBindings.Create(t.Context(), &rbacv1rpc.CreateClusterRoleBindingRequest{
		Object: &rbacv1.ClusterRoleBinding{
			Metadata: &metav1.ObjectMeta{Name: user},
			RoleRef:  &rbacv1.RoleRef{ApiGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: user},
			Subjects: []*rbacv1.Subject{{Kind: "User", ApiGroup: "rbac.authorization.k8s.io", Name: user}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, c *client.Client, o *request) *request {
	t.Helper()
	made, err := c.CertificateSigningRequests.Create(t.Context(),
		&certificatesv1rpc.CreateCertificateSigningRequestRequest{Object: o})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func decide(t *testing.T, c *client.Client, o *request, decision string) (*request, error) {
	t.Helper()
	next := object.Clone(o)
	next.Status.Conditions = append(next.Status.Conditions, &certificatesv1.CertificateSigningRequestCondition{
		Type: decision, Status: "True", Reason: "KubectlApprove",
	})
	return c.CertificateSigningRequests.UpdateApproval(t.Context(),
		&certificatesv1rpc.UpdateCertificateSigningRequestRequest{Name: o.GetMetadata().GetName(), Object: next})
}

// later returns a request after a while, nil when it is gone.
func later(t *testing.T, c *client.Client, name string, d time.Duration) *request {
	t.Helper()
	time.Sleep(d)
	o, err := c.CertificateSigningRequests.Get(t.Context(), &metav1.GetRequest{Name: name})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		t.Fatal(err)
	}
	return o
}

// An approved request gets a certificate of the authority for its subject, good for as long as was asked; who made it
// is what the server says. An hour later the request is gone.
func TestApprovedRequestsAreSigned(t *testing.T) {
	world(t, func(t *testing.T, s *apitest.Server, bundle *pki.Bundle) {
		o := asking(t, "eve", signing.Client, "eve", []string{"ops"}, "client auth", "digital signature")
		o.Spec.Username, o.Spec.Groups = "monoplane:admin", []string{"system:masters"}
		approved := &certificatesv1.CertificateSigningRequestCondition{Type: signing.Approved, Status: "True"}
		o.Status = &certificatesv1.CertificateSigningRequestStatus{
			Conditions: []*certificatesv1.CertificateSigningRequestCondition{approved},
		}
		made := create(t, s.As("eve", "ops"), o)
		if got := made.GetSpec(); got.GetUsername() != "eve" || strings.Join(got.GetGroups(), " ") != "ops" ||
			len(made.GetStatus().GetConditions()) != 0 {
			t.Errorf("made as %v", made)
		}
		if got := later(t, s.Admin(), "eve", time.Minute); len(got.GetStatus().GetCertificate()) > 0 {
			t.Error("a request is signed that nobody has approved")
		}
		if _, err := decide(t, s.As("eve", "ops"), made, signing.Approved); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("eve approves her own request: %v", err)
		}
		if _, err := decide(t, s.Admin(), made, signing.Approved); err != nil {
			t.Fatal(err)
		}
		got := later(t, s.Admin(), "eve", time.Second)
		block, _ := pem.Decode(got.GetStatus().GetCertificate())
		if block == nil {
			t.Fatalf("not signed: %v", got.GetStatus())
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = cert.Verify(x509.VerifyOptions{
			Roots: bundle.ClientCAs(), CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil || cert.Subject.CommonName != "eve" || cert.Subject.Organization[0] != "ops" || cert.IsCA ||
			time.Until(cert.NotAfter).Round(time.Minute) != time.Hour {
			t.Errorf("certificate of %v until %v: %v", cert.Subject, cert.NotAfter, err)
		}
		if later(t, s.Admin(), "eve", 58*time.Minute) == nil {
			t.Error("gone before an hour")
		}
		if later(t, s.Admin(), "eve", 2*time.Minute) != nil {
			t.Error("there after an hour")
		}
	})
}

// What cannot be signed says why: other usages than a client's, and signers that nobody is here. What other programs
// sign is left to them.
func TestRequestsThatFail(t *testing.T) {
	world(t, func(t *testing.T, s *apitest.Server, _ *pki.Bundle) {
		for _, tc := range []struct{ name, signer, usage, want string }{
			{"server", signing.Client, "server auth", "invalid usage for client certificate: server auth"},
			{"none", signing.Client, "digital signature", "missing required usage for client certificate: client auth"},
			{"kubelet", "kubernetes.io/kubelet-serving", "server auth", "nobody signs for kubernetes.io/kubelet-serving here"},
			{"other", "example.com/mine", "client auth", ""},
		} {
			made := create(t, s.Admin(), asking(t, tc.name, tc.signer, "eve", nil, tc.usage))
			if _, err := decide(t, s.Admin(), made, signing.Approved); err != nil {
				t.Fatal(err)
			}
			got := later(t, s.Admin(), tc.name, time.Second)
			failed := signing.Condition(got, signing.Failed)
			if !strings.HasPrefix(failed.GetMessage(), tc.want) || (failed == nil) != (tc.want == "") ||
				len(got.GetStatus().GetCertificate()) > 0 {
				t.Errorf("%s: %v", tc.name, got.GetStatus())
			}
		}
		if later(t, s.Admin(), "server", time.Hour) != nil {
			t.Error("a failed request is there after an hour")
		}
		if later(t, s.Admin(), "other", 22*time.Hour) == nil || later(t, s.Admin(), "other", 2*time.Hour) != nil {
			t.Error("an approved request that nobody signs does not stay for a day")
		}
	})
}

// A denied request goes after an hour, one that nobody decides after a day. What was decided stays.
func TestUnsignedRequests(t *testing.T) {
	world(t, func(t *testing.T, s *apitest.Server, _ *pki.Bundle) {
		create(t, s.Admin(), asking(t, "pending", signing.Client, "eve", nil, "client auth"))
		denied := create(t, s.Admin(), asking(t, "denied", signing.Client, "eve", nil, "client auth"))
		denied, err := decide(t, s.Admin(), denied, signing.Denied)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decide(t, s.Admin(), denied, signing.Approved); !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("a denied request is approved: %v", err)
		}
		denied = object.Clone(denied)
		denied.Status.Conditions = nil
		_, err = s.Admin().CertificateSigningRequests.UpdateApproval(t.Context(),
			&certificatesv1rpc.UpdateCertificateSigningRequestRequest{Name: "denied", Object: denied})
		if !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("a denial is taken back: %v", err)
		}
		if later(t, s.Admin(), "denied", 59*time.Minute) == nil || later(t, s.Admin(), "denied", 2*time.Minute) != nil {
			t.Error("a denied request does not stay for an hour")
		}
		if later(t, s.Admin(), "pending", 22*time.Hour) == nil || later(t, s.Admin(), "pending", 2*time.Hour) != nil {
			t.Error("a request that nobody decides does not stay for a day")
		}
	})
}

// Nobody becomes an administrator or a part of the control plane by a certificate, and who approves or signs needs the
// right for the signer. spec: DEL-8
func TestWhatNobodyMayAsk(t *testing.T) {
	world(t, func(t *testing.T, s *apitest.Server, _ *pki.Bundle) {
		for _, tc := range []struct {
			subject string
			groups  []string
		}{
			{"eve", []string{"ops", "system:masters"}}, {"system:node:a", []string{"system:nodes"}}, {"system:scheduler", nil},
			{"system:controller:podgc", nil},
		} {
			_, err := s.Admin().CertificateSigningRequests.Create(t.Context(),
				&certificatesv1rpc.CreateCertificateSigningRequestRequest{
					Object: asking(t, "x", signing.Client, tc.subject, tc.groups, "client auth"),
				})
			if !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%s of %v: %v", tc.subject, tc.groups, err)
			}
		}
		approver := func(name, signer string) *client.Client {
			grant(t, s.Admin(), name,
				&rbacv1.PolicyRule{Verbs: []string{"update"}, ApiGroups: []string{"certificates.k8s.io"}, Resources: []string{
					"certificatesigningrequests/approval", "certificatesigningrequests/status"}},
				&rbacv1.PolicyRule{Verbs: []string{"approve"}, ApiGroups: []string{"certificates.k8s.io"},
					Resources: []string{"signers"}, ResourceNames: []string{signer}})
			return s.As(name)
		}
		made := create(t, s.Admin(), asking(t, "a", signing.Client, "eve", nil, "client auth"))
		if _, err := decide(t, approver("wrong", "example.com/mine"), made, signing.Approved); !apierrors.Is(err,
			apierrors.Forbidden) {
			t.Errorf("approved without the right for the signer: %v", err)
		}
		whole := approver("whole", "kubernetes.io/*")
		next := object.Clone(made) // while it is not approved the controller leaves it alone
		next.Status.Certificate = []byte("x")
		_, err := whole.CertificateSigningRequests.UpdateStatus(t.Context(),
			&certificatesv1rpc.UpdateCertificateSigningRequestRequest{Name: "a", Object: next})
		if !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("signed without the right: %v", err)
		}
		if _, err := decide(t, whole, made, signing.Approved); err != nil {
			t.Errorf("not approved with the right for the domain: %v", err)
		}
	})
}
