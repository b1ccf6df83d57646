package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"monoplane.dev/codec/grpccodec"
)

// Limits and intervals of a dialled connection.
const (
	// maxMessage bounds an answer; 10 000 large pods fit.
	maxMessage = 256 << 20
	// keepaliveTime is how long a connection with running calls may be silent before it is probed, and
	// keepaliveTimeout how long the probe may take.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

// Config says where the server is and who we are.
type Config struct {
	// Address is the host and port of the server's gRPC listener.
	Address string
	// TLS holds the server's CA and our client certificate. Nil dials without TLS, which a server of ours accepts only
	// in tests.
	TLS *tls.Config
	// Token is a bearer token, for identities without a certificate. It is only sent over TLS.
	Token string
	// UserAgent names the program in the server's audit log; optional.
	UserAgent string
}

// Dial connects to the server and waits until it answers or ctx ends. Later losses of the connection are mended by
// themselves; calls made meanwhile fail with reason ServiceUnavailable.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.Address == "" {
		return nil, errors.New("client: the server's gRPC address is not set")
	}
	if cfg.Token != "" && cfg.TLS == nil {
		return nil, errors.New("client: a token needs TLS")
	}
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.ForceCodecV2(grpccodec.Codec{})),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}
	if cfg.UserAgent != "" {
		opts = append(opts, grpc.WithUserAgent(cfg.UserAgent))
	}
	if cfg.Token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(cfg.Token)))
	}
	conn, err := grpc.NewClient("passthrough:///"+cfg.Address, opts...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	// Any answer will do: a server that refuses the question is there, too.
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if c := status.Code(err); c == codes.Unavailable || c == codes.DeadlineExceeded || c == codes.Canceled {
		_ = conn.Close()
		return nil, fmt.Errorf("client: cannot reach %s: %w", cfg.Address, err)
	}
	return New(conn), nil
}

// bearer sends a token with every call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }
