#!/usr/bin/env bash
# Software: gRPC for Go 1.85.0 (google.golang.org/grpc)
# Guess: a retry policy with maxAttempts 10 makes up to ten attempts, or the client refuses the service config.
# Behaviour: the service config is accepted, and calls stop after five attempts, a bound of the client. Only the dial
#   option WithMaxCallAttempts raises it, and then the policy counts.
# Seen:
#   maxAttempts 3: 3 attempts
#   maxAttempts 10: 5 attempts
#   maxAttempts 10 and WithMaxCallAttempts(20): 10 attempts
set -euo pipefail
sed -n '/^# /s/^# //p' "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^# Seen:/,/^set/s/^#   //p' "$0" >"$dir/expected"
cd "$dir"
export GOWORK=off

cat >go.mod <<'EOF'
module finding

go 1.26

require (
	google.golang.org/grpc v1.85.0
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

type unavailable struct {
	grpc_health_v1.UnimplementedHealthServer
	attempts atomic.Int32
}

func (u *unavailable) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (
	*grpc_health_v1.HealthCheckResponse, error) {
	u.attempts.Add(1)
	return nil, status.Error(codes.Unavailable, "later")
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server, health := grpc.NewServer(), &unavailable{}
	grpc_health_v1.RegisterHealthServer(server, health)
	go server.Serve(listener)

	try := func(what string, attempts int, more ...grpc.DialOption) {
		config := fmt.Sprintf(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": %d,
			"initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
			"retryableStatusCodes": ["UNAVAILABLE"]}}]}`, attempts)
		conn, err := grpc.NewClient(listener.Addr().String(), append(more, grpc.WithDefaultServiceConfig(config),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			panic(err)
		}
		health.attempts.Store(0)
		grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		fmt.Printf("%s: %d attempts\n", what, health.attempts.Load())
	}
	try("maxAttempts 3", 3)
	try("maxAttempts 10", 10)
	try("maxAttempts 10 and WithMaxCallAttempts(20)", 10, grpc.WithMaxCallAttempts(20))
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
