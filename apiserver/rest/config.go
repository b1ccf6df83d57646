package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/apiserver/metering"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/object"
	"monoplane.dev/object/service"
)

// Config is what New needs.
type Config struct {
	// Conn reaches the gRPC services, in-process. It must pass the values of the request's context through,
	// so that services see the user and can warn (see inproc.PassValues). Required.
	Conn grpc.ClientConnInterface
	// Authenticate returns the request with the user (authn.WithUser) in its context, or answers 401 and returns nil.
	// Health checks and /version are served without it. Required.
	Authenticate func(http.ResponseWriter, *http.Request) *http.Request
	// Services are the services to serve; those of all kinds when nil.
	Services []*service.Service
	// Table returns how objects of a kind are shown by kubectl get; nil, or a nil answer, shows name and age.
	Table func(*object.Kind) table.Definition
	// Meter counts the requests; nil for none.
	Meter *metering.Meter
	// Paths answer what is no resource, such as /metrics, for those whom AuthorizePath lets; a path that ends in a slash
	// stands for all below it.
	Paths map[string]http.Handler
	// Health takes the results of health checks; nil for nobody.
	Health func(endpoint, check string, err error)
	// AuthorizePath judges requests for Paths; nil lets nobody read them.
	AuthorizePath func(ctx context.Context, verb, path string) error
	// Audit records every request; nil for none.
	Audit *audit.Log
	// OpenID tells how to verify tokens of service accounts; nil leaves that out.
	OpenID OpenID
	// Live and Ready are the checks of /livez and /readyz, in the order in which they are reported. /healthz
	// runs those of Live.
	Live, Ready []Check
	// Version is what /version says, such as "1.36.3+monoplane"; a leading "v" is optional. The major and minor
	// version come from it.
	Version string
	// Logger gets what clients are not told. Required.
	Logger *slog.Logger
	// Now is the clock for the ages in tables; time.Now when nil.
	Now func() time.Time
	// CacheBytes bounds the memory of encoded bodies; 48 MiB when 0.
	CacheBytes int64
	// RequestTimeout bounds requests that are not streams; 60 s when 0.
	RequestTimeout time.Duration
	// StallTimeout is how long a client may take to send its body, or to take a piece of an answer; 60 s when 0.
	StallTimeout time.Duration
	// Limits bounds the requests that are served at once, and what lasts; further ones wait, and get 429. With its own
	// defaults when nil.
	Limits *fair.Limiter
}

// OpenID has the documents by which others verify tokens of service accounts; a *tokens.Authority is such.
type OpenID interface {
	// Configuration returns the OpenID configuration for clients that know the server by base.
	Configuration(base string) ([]byte, error)
	// Keys returns the JSON Web Key Set.
	Keys() ([]byte, error)
}

// Check is one health check.
type Check struct {
	// Name is the last segment of its path, such as "etcd" for /readyz/etcd.
	Name string
	// Run returns nil when all is well. It must be quick.
	Run func(context.Context) error
}

func (c *Config) complete() error {
	if c.Conn == nil || c.Authenticate == nil || c.Logger == nil {
		return errors.New("rest: Conn, Authenticate and Logger are required")
	}
	if c.Services == nil {
		c.Services = services.All()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 48 << 20
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = time.Minute
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = time.Minute
	}
	if c.Limits == nil {
		c.Limits = fair.New(fair.Config{})
	}
	return nil
}
