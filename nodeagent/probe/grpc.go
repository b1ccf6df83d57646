package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	corev1 "monoplane.dev/api/core/v1"
)

// runGRPC asks the health service whether the server, or one service of it, is serving.
func runGRPC(ctx context.Context, action *corev1.GRPCAction, t Target, timeout time.Duration) (Result, string) {
	address, err := t.join("", int(action.GetPort()))
	if err != nil {
		return Unknown, err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := connect(ctx, t, address)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Failure, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, err)
	case err != nil:
		return Failure, fmt.Sprintf("error: failed to connect service at %q: %v", address, err)
	}
	defer conn.Close()
	request := &grpc_health_v1.HealthCheckRequest{Service: action.GetService()}
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, request)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " +
			status.Convert(err).Message()
	case status.Code(err) == codes.DeadlineExceeded:
		return Failure, fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	case err != nil:
		return Failure, fmt.Sprintf("error: health rpc probe failed: %v", err)
	case answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return Failure, fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus())
	default:
		return Success, ""
	}
}

// connect returns a connection that is up. Like a kubelet it goes on trying until the time is over, so that a server
// that comes up in the meantime is found well.
func connect(ctx context.Context, t Target, address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent("kube-probe/"+version),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBody)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return t.dial(ctx, "tcp", address)
		}))
	if err != nil {
		return nil, err
	}
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.Idle { // the server has closed the connection at once
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			conn.Close()
			return nil, ctx.Err()
		}
	}
	return conn, nil
}
