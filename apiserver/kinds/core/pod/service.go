package pod

import (
	"context"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"

	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/object"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// service is the Pods service: the standard methods from a backend, and those that only pods have.
type service struct {
	corev1rpc.PodsBackend
	pods    *Pods
	logs    define.LogStreamer
	streams define.StreamSource
}

// Service returns the Pods service over a backend of the strategy. Logs and streams may be nil: then there are none.
func (p *Pods) Service(
	backend object.Backend, logs define.LogStreamer, streams define.StreamSource,
) corev1rpc.PodsServer {
	return &service{PodsBackend: corev1rpc.PodsBackend{Backend: backend}, pods: p, logs: logs, streams: streams}
}

// Bind serves Pods.Bind.
func (s *service) Bind(ctx context.Context, req *corev1rpc.BindPodRequest) (*metav1.Status, error) {
	return s.pods.bind(ctx, req)
}

// Log serves Pods.Log.
func (s *service) Log(req *corev1rpc.LogPodRequest, stream grpc.ServerStreamingServer[httpbody.HttpBody]) error {
	return s.log(req, stream)
}
