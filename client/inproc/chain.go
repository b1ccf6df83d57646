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
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return all[0](ctx, req, info, nextUnary(all[1:], info, h))
	}
}

// nextUnary is the handler behind the first of all interceptors that are left.
func nextUnary(all []grpc.UnaryServerInterceptor, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) grpc.UnaryHandler {
	if len(all) == 0 {
		return h
	}
	return func(ctx context.Context, req any) (any, error) {
		return all[0](ctx, req, info, nextUnary(all[1:], info, h))
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
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return all[0](srv, ss, info, nextStream(all[1:], info, h))
	}
}

// nextStream is nextUnary for streams.
func nextStream(
	all []grpc.StreamServerInterceptor, info *grpc.StreamServerInfo, h grpc.StreamHandler,
) grpc.StreamHandler {
	if len(all) == 0 {
		return h
	}
	return func(srv any, ss grpc.ServerStream) error {
		return all[0](srv, ss, info, nextStream(all[1:], info, h))
	}
}
