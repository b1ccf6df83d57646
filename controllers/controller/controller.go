// Package controller says how a controller is declared: what it is called, what it must be allowed to do, and how it
// is made. The declarations are listed in package controllers.
package controller

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/rules/podrange"
	"monoplane.dev/rules/rights"
)

// Declaration describes a controller. It is data: the server makes its table of rights of it, and the program that
// starts the controllers gives each the identity system:controller:NAME.
type Declaration struct {
	// Name is unique among controllers.
	Name string
	// Grants is what the controller may do, besides what every part of the control plane may: write events, hold
	// leases, and read priority classes.
	Grants []rights.Grant
	// EveryServer says that it works for the server that it runs in, and so in each of several that share an etcd. Of the
	// others one does in all of them.
	EveryServer bool
	// New makes the controller. It may be called again when the one before has ended.
	New func(Env) (Component, error)
}

// Component is what runs beside the API.
type Component interface {
	// Run works until ctx ends, and returns ctx's error.
	Run(ctx context.Context) error
	// Ready returns nil once the component works, and until then what it waits for.
	Ready() error
}

type registererKey struct{}

// WithRegisterer returns a context in which the work queues of a controller that Run is called with give their metrics
// to r, while they work.
func WithRegisterer(ctx context.Context, r prometheus.Registerer) context.Context {
	return context.WithValue(ctx, registererKey{}, r)
}

// Registerer returns what takes the metrics of work queues; nil for none.
func Registerer(ctx context.Context) prometheus.Registerer {
	r, _ := ctx.Value(registererKey{}).(prometheus.Registerer)
	return r
}

// Env is what a controller gets from the program that starts it.
type Env struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared are the caches of kinds that several controllers read.
	Shared *Shared
	// Logger is never nil.
	Logger *slog.Logger
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	// RootCA returns the certificate of the authority that the API server's is signed by, PEM, as it is now; nil for a
	// server without listeners.
	RootCA func() []byte
	// Sign completes a template for a certificate of a client, signs it with the authority and returns it as PEM; nil for
	// a server without listeners, which nobody shows a certificate.
	Sign func(template *x509.Certificate) ([]byte, error)
	// Tokens makes the tokens that Secrets hold.
	Tokens Tokens
	// Settings are the same for all controllers; each reads its own.
	Settings Settings
}

// Tokens makes the tokens of service accounts that Secrets hold.
type Tokens interface {
	// ForSecret returns a token of a service account for a Secret of its namespace.
	ForSecret(account *corev1.ServiceAccount, secret string) (string, error)
	// Signed says whether a text is such a token, and one that this server has made.
	Signed(token string) bool
}

// Settings are what an operator may choose about controllers. A zero value stands for the controller's default.
type Settings struct {
	// TerminatedPodGCThreshold is how many terminal pods PodGC keeps; a negative one keeps all (spec: GC-4).
	TerminatedPodGCThreshold int
	// NodeLifecycle is for the controller of lost nodes.
	NodeLifecycle NodeLifecycle
	// Server is the API server that the controllers run beside.
	Server Server
	// PodRanges are what nodes are given parts of, for the addresses of their pods; none gives them nothing.
	PodRanges []podrange.Cluster
	// ServiceRanges are what cluster IPs of Services come from: one, or two of different families.
	ServiceRanges []netip.Prefix
	// Ingress is where requests for Ingresses arrive.
	Ingress Ingress
	// DefaultStorageClass is the name of the storage class that a new cluster gets; empty for none.
	DefaultStorageClass string
	// RemoveVolume has the agent of a node remove the directory of a volume that was made in the node's own directory, as
	// the server that the controllers run beside reaches it: ServiceUnavailable where it does not, Conflict while a pod
	// of the node has the volume.
	RemoveVolume func(ctx context.Context, node, volume string) error
}

// Ingress says where requests for Ingresses arrive, and how they go on.
type Ingress struct {
	// HTTP and HTTPS are the listeners, which the controller closes when it ends; without both none is served.
	HTTP, HTTPS net.Listener
	// Addresses are where clients reach them, for the status of Ingresses.
	Addresses []netip.Addr
	// Dial connects to the address of a pod, over "tcp".
	Dial func(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error)
}

// On says whether Ingresses are served.
func (i Ingress) On() bool { return i.HTTP != nil || i.HTTPS != nil }

// Server says how an API server is reached.
type Server struct {
	// Reached says where programs in the cluster reach it now; not valid while that is not known. Nil for one that nobody
	// reaches over the network.
	Reached func() netip.AddrPort
	// ClusterIP is the address of its Service.
	ClusterIP netip.Addr
	// Shared says that others may use the same etcd.
	Shared bool
}

// NodeLifecycle says when nodes count as lost, and how fast their pods are evicted (spec: NODE-3). Zero values stand
// for the defaults; rates that are negative evict nothing.
type NodeLifecycle struct {
	// MonitorPeriod is the time between two looks at all nodes; 5 s by default.
	MonitorPeriod time.Duration
	// MonitorGrace is how long nothing may be heard of a node that was ready before it counts as lost; 50 s by default.
	// Agents of the same process send their heartbeats five times as often, and every 10 s at least.
	MonitorGrace time.Duration
	// StartupGrace is the same for a node whose agent has never said how it is; 60 s by default.
	StartupGrace time.Duration
	// EvictionRate is how many nodes of a zone are evicted in a second; 0.1 by default.
	EvictionRate float64
	// SecondaryEvictionRate is that of a large zone of which much is disrupted; 0.01 by default. In others that are,
	// nothing is evicted.
	SecondaryEvictionRate float64
	// LargeZone is the number of nodes above which a zone is large; 50 by default.
	LargeZone int
	// UnhealthyZone is the share of nodes that are not ready from which on a zone is disrupted; 0.55 by default.
	UnhealthyZone float64
}

// Complete returns n with its defaults, or says what is wrong with it.
func (n NodeLifecycle) Complete() (NodeLifecycle, error) {
	n.MonitorPeriod = cmp.Or(n.MonitorPeriod, 5*time.Second)
	n.MonitorGrace = cmp.Or(n.MonitorGrace, 50*time.Second)
	n.StartupGrace = cmp.Or(n.StartupGrace, time.Minute)
	n.EvictionRate, n.SecondaryEvictionRate = cmp.Or(n.EvictionRate, 0.1), cmp.Or(n.SecondaryEvictionRate, 0.01)
	n.LargeZone, n.UnhealthyZone = cmp.Or(n.LargeZone, 50), cmp.Or(n.UnhealthyZone, 0.55)
	switch {
	case n.MonitorPeriod < 0 || n.MonitorGrace < 0 || n.StartupGrace < 0:
		return n, errors.New("the times of the control of nodes must be positive")
	case n.MonitorPeriod > n.MonitorGrace:
		return n, fmt.Errorf("nodes are looked at every %s, which is less often than their grace of %s is to be measured",
			n.MonitorPeriod, n.MonitorGrace)
	case n.UnhealthyZone <= 0 || n.UnhealthyZone > 1:
		return n, fmt.Errorf("the share of nodes from which on a zone is disrupted is %v; it must be above 0 and at most 1",
			n.UnhealthyZone)
	default:
		return n, nil
	}
}

// Heartbeat returns the time between two heartbeats of agents that this process runs; n is complete.
func (n NodeLifecycle) Heartbeat() time.Duration { return min(10*time.Second, n.MonitorGrace/5) }
