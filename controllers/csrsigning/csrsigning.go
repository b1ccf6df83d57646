// Package csrsigning is the controller that signs approved CertificateSigningRequests for the server's own clients, so
// that `kubectl certificate approve` makes a user.
//
// What it guarantees: nothing is signed that is not approved when it is written, since the certificate is written to
// the revision that was judged; a request is signed once. A request that cannot be signed gets a condition Failed that
// says why: its usages are others than a client's, or its signer is one of Kubernetes' for kubelets, which there are
// none of here. What it does not do: it approves nothing, and leaves alone the signers of other domains.
package csrsigning

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/rules/rights"
	"monoplane.dev/rules/signing"

	certificatesv1 "monoplane.dev/api/certificates/v1"
	certificatesv1rpc "monoplane.dev/api/certificates/v1/rpc"
)

// failure is the reason of the condition Failed.
const failure = "SignerValidationFailure"

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "csrsigning",
		Grants: []rights.Grant{
			{Verbs: "update", Resources: "certificatesigningrequests/status"},
			{Verbs: "sign", Resources: "signers"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Sign: e.Sign, Logger: e.Logger})
		},
	}
}

// Config describes a controller.
type Config struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared has the requests.
	Shared *controller.Shared
	// Sign signs a template and returns PEM; nil for a server that nobody shows a certificate.
	Sign func(*x509.Certificate) ([]byte, error)
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller signs requests. Run starts it.
type Controller struct {
	cfg      Config
	requests *cache.Cache[*certificatesv1.CertificateSigningRequest]
	synced   atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("csrsigning: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg, requests: controller.Of[*certificatesv1.CertificateSigningRequest](cfg.Shared)}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("controller of certificates: reading the CertificateSigningRequests")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(loop.Config[cache.Key]{Name: "csrsigning", Reconcile: c.reconcile, Logger: c.cfg.Logger})
	add := func(o *certificatesv1.CertificateSigningRequest) {
		if waits(o) {
			queue.Add(cache.KeyOf(o))
		}
	}
	c.requests.AddHandler(cache.Handler[*certificatesv1.CertificateSigningRequest]{
		OnAdd: add, OnUpdate: func(_, o *certificatesv1.CertificateSigningRequest) { add(o) },
	})
	return queue.Serve(ctx, &c.synced, []controller.Synced{c.requests})
}

// waits says whether a request is for us, approved, and neither signed nor failed.
func waits(o *certificatesv1.CertificateSigningRequest) bool {
	return strings.HasPrefix(o.GetSpec().GetSignerName(), "kubernetes.io/") && signing.Has(o, signing.Approved) &&
		!signing.Has(o, signing.Denied) && !signing.Has(o, signing.Failed) && len(o.GetStatus().GetCertificate()) == 0 &&
		o.GetMetadata().GetDeletionTimestamp() == nil
}

// reconcile signs a request, or says why that cannot be.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	live, ok := c.requests.Get("", key.Name)
	if !ok || !waits(live) {
		return 0, nil
	}
	now := time.Now()
	next := object.Clone(live)
	certificate, why, err := c.sign(live, now)
	switch {
	case err != nil:
		return 0, err
	case why != nil:
		next.Status.Conditions = append(next.Status.Conditions, &certificatesv1.CertificateSigningRequestCondition{
			Type: signing.Failed, Status: "True", Reason: failure, Message: why.Error(), LastUpdateTime: value.Time(now),
		})
	default:
		next.Status.Certificate = certificate
	}
	_, err = c.cfg.Client.CertificateSigningRequests.UpdateStatus(ctx,
		&certificatesv1rpc.UpdateCertificateSigningRequestRequest{Name: key.Name, Object: next})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) {
		return 0, fmt.Errorf("write the status of CertificateSigningRequest %s: %w", key.Name, err)
	}
	return 0, nil // a change that came between brings the request here again
}

// sign returns the certificate of a request, or why it can never have one.
func (c *Controller) sign(o *certificatesv1.CertificateSigningRequest, now time.Time) (pem []byte, why, err error) {
	if name := o.GetSpec().GetSignerName(); name != signing.Client {
		return nil, fmt.Errorf("nobody signs for %s here: agents run in the server, and need no certificates", name), nil
	}
	if c.cfg.Sign == nil {
		return nil, errors.New("the server has no authority: it listens nowhere, and nobody shows it a certificate"), nil
	}
	template, why := signing.ClientTemplate(o.GetSpec(), now)
	if why != nil {
		return nil, why, nil
	}
	pem, err = c.cfg.Sign(template)
	return pem, nil, err
}
