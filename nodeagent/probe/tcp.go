package probe

import (
	"context"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// runTCP succeeds when a connection can be opened; what the server does with it is of no interest.
func runTCP(ctx context.Context, action *corev1.TCPSocketAction, t Target, timeout time.Duration) (Result, string) {
	address, err := t.address(action.GetHost(), action.GetPort())
	if err != nil {
		return Unknown, err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := t.dial(ctx, "tcp", address)
	if err != nil {
		return Failure, err.Error()
	}
	conn.Close()
	return Success, ""
}
