// Package csrcleaner is the controller that deletes old CertificateSigningRequests: an hour after they were signed,
// denied or failed, a day after they were approved and nobody signed, a day after they were made and nobody decided,
// and when their certificate has expired.
//
// What it guarantees: a request is deleted as it was judged; one that was changed meanwhile, or another of its name,
// stays. What it does not do: it takes no certificate back, which is good until it expires.
package csrcleaner

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/rules/rights"
	"monoplane.dev/rules/signing"

	certificatesv1 "monoplane.dev/api/certificates/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	// kept is how long a request is kept that has come to its end.
	kept = time.Hour
	// patience is how long one is kept that waits for somebody.
	patience = 24 * time.Hour
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name:   "csrcleaner",
		Grants: []rights.Grant{{Verbs: "delete", Resources: "certificatesigningrequests"}},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}

// Config describes a controller.
type Config struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared has the requests.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller deletes requests. Run starts it.
type Controller struct {
	api      *client.Client
	logger   *slog.Logger
	requests *cache.Cache[*certificatesv1.CertificateSigningRequest]
	synced   atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("csrcleaner: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	requests := controller.Of[*certificatesv1.CertificateSigningRequest](cfg.Shared)
	return &Controller{api: cfg.Client, logger: cfg.Logger, requests: requests}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("controller of old certificate requests: reading the CertificateSigningRequests")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(loop.Config[cache.Key]{Name: "csrcleaner", Reconcile: c.reconcile, Logger: c.logger})
	add := func(o *certificatesv1.CertificateSigningRequest) { queue.Add(cache.KeyOf(o)) }
	c.requests.AddHandler(cache.Handler[*certificatesv1.CertificateSigningRequest]{
		OnAdd: add, OnUpdate: func(_, o *certificatesv1.CertificateSigningRequest) { add(o) },
	})
	return queue.Serve(ctx, &c.synced, []controller.Synced{c.requests})
}

// reconcile deletes a request whose time has come, or comes back when it will have.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	o, ok := c.requests.Get("", key.Name)
	if !ok || o.GetMetadata().GetDeletionTimestamp() != nil {
		return 0, nil
	}
	at, ok := due(o)
	if !ok {
		return 0, nil
	}
	if wait := time.Until(at); wait > 0 {
		return wait, nil
	}
	m := o.GetMetadata()
	_, err := c.api.CertificateSigningRequests.Delete(ctx, &metav1.DeleteRequest{
		Name: key.Name, Options: &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{Uid: &m.Uid, ResourceVersion: &m.ResourceVersion},
		},
	})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) {
		return 0, fmt.Errorf("delete CertificateSigningRequest %s: %w", key.Name, err)
	}
	return 0, nil // a change that came between brings the request here again
}

// due returns when a request is to be deleted, the earliest of what holds for it; ok is false when nothing does.
func due(o *certificatesv1.CertificateSigningRequest) (at time.Time, ok bool) {
	from := func(t *metav1.Time, life time.Duration) {
		begins := value.GoTime(t)
		if ends := begins.Add(life); !begins.IsZero() && (!ok || ends.Before(at)) {
			at, ok = ends, true
		}
	}
	issued := len(o.GetStatus().GetCertificate()) > 0
	if len(o.GetStatus().GetConditions()) == 0 {
		from(o.GetMetadata().GetCreationTimestamp(), patience)
	}
	for _, end := range []string{signing.Denied, signing.Failed} {
		from(signing.Condition(o, end).GetLastUpdateTime(), kept)
	}
	if approved := signing.Condition(o, signing.Approved); approved != nil && issued {
		from(approved.GetLastUpdateTime(), kept)
		if ends := expiry(o.GetStatus().GetCertificate()); !ends.IsZero() && (!ok || ends.Before(at)) {
			at, ok = ends, true
		}
	} else {
		from(approved.GetLastUpdateTime(), patience)
	}
	return at, ok
}

// expiry returns when a certificate ends; the zero time for what is none.
func expiry(text []byte) time.Time {
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return c.NotAfter
}
