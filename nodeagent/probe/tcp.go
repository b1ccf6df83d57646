package probe

import (
	"context"
	"net"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// runTCP succeeds when a connection can be opened; what the server does with it is of no interest.
func runTCP(ctx context.Context, action *corev1.TCPSocketAction, t Target, timeout time.Duration) (Result, string) {
	address, err := t.address(action.GetHost(), action.GetPort())
	if err != nil {
		return Unknown, err.Error()
	}
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return Failure, err.Error()
	}
	conn.Close()
	return Success, ""
}
