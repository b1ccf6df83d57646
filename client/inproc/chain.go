package inproc

import (
	"context"

	"google.golang.org/grpc"
)

// chainUnary makes one interceptor of many, the first one outermost; nil when there are none.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	first, rest := all[0], chainUnary(all[1:])
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return first(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return rest(ctx, req, info, h)
		})
	}
}

// chainStream makes one interceptor of many, the first one outermost; nil when there are none.
func chainStream(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	first, rest := all[0], chainStream(all[1:])
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return first(srv, ss, info, func(srv any, ss grpc.ServerStream) error {
			return rest(srv, ss, info, h)
		})
	}
}
