package pod

import (
	"google.golang.org/grpc"

	"monoplane.dev/apiserver/kinds/core/podproxy"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// Proxy serves Pods.Proxy (CTR-9).
func (s *service) Proxy(stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput]) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	name, err := podproxy.ParseName("pod", req.GetName())
	if err != nil {
		return err
	}
	p, err := s.livePod(stream.Context(), req.GetNamespace(), name.Name)
	if err != nil {
		return err
	}
	port, err := podproxy.PortOf(p, name.Port)
	if err != nil {
		return err
	}
	return podproxy.Serve(stream.Context(), podproxy.Stream{
		Receive: func() (*corev1.ProxyInput, error) {
			req, err := stream.Recv()
			return req.GetInput(), err
		},
		Send: stream.Send,
	}, req.GetInput(), req.GetPath(), podproxy.Target{
		Node: p.GetSpec().GetNodeName(), UID: p.GetMetadata().GetUid(), Port: port, TLS: name.TLS,
	}, s.streams)
}
