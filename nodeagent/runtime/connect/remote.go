package connect

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criTimeout bounds the first call to a runtime, so that a wrong endpoint is told at start.
const criTimeout = 5 * time.Second

// The times of connecting again to a runtime that has died. By default gRPC waits up to two minutes between tries; a
// socket on this machine costs next to nothing to try. With the pause between the agent's own looks this makes a
// runtime that is back seen within a second. spec: NODE-2
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectMost  = 250 * time.Millisecond
	// answerWithin is how long one attempt waits for a runtime that accepts a connection and does not speak yet.
	answerWithin = 20 * time.Second
)

// options are those of every connection to a runtime.
func options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMost},
			MinConnectTimeout: answerWithin,
		}),
	}
}

// Remote connects to the unix socket of a runtime and asks for its version. The socket's permissions are its
// protection: CRI has no transport security.
func Remote(ctx context.Context, endpoint string) (*grpc.ClientConn, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || u.Host != "" || u.Path == "" {
		return nil, fmt.Errorf("runtime endpoint %q: must be a unix socket such as unix:///run/containerd/containerd.sock",
			endpoint)
	}
	conn, err := grpc.NewClient(u.String(), options()...)
	if err != nil {
		return nil, fmt.Errorf("runtime endpoint %q: %w", endpoint, err)
	}
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	if err == nil {
		return conn, nil
	}
	_ = conn.Close() // the version's error says more
	why := status.Convert(err)
	if why.Code() == codes.Unimplemented {
		return nil, fmt.Errorf("runtime endpoint %q does not serve CRI v1: %s (for containerd, see disabled_plugins in "+
			"its config.toml)", endpoint, why.Message())
	}
	return nil, fmt.Errorf("runtime endpoint %q does not answer: %s", endpoint, why.Message())
}
