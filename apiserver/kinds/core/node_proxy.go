package core

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/define"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// nodeService is the Nodes service: the standard methods from a backend, and Proxy.
type nodeService struct {
	corev1rpc.NodesBackend
	documents define.DocumentSource
}

const (
	// documentPatience is how long an agent may take to make a document.
	documentPatience = 30 * time.Second
	// documentPiece is how much of a document one message carries.
	documentPiece = 256 << 10
)

// Proxy serves Nodes.Proxy: nothing is passed on to the machine but the path, and the agent answers what it knows.
func (s *nodeService) Proxy(
	req *corev1rpc.ProxyNodeRequest, stream grpc.ServerStreamingServer[httpbody.HttpBody],
) error {
	ctx, cancel := context.WithTimeout(stream.Context(), documentPatience)
	defer cancel()
	if _, err := s.Backend.Get(ctx, &metav1.GetRequest{Name: req.GetName()}); err != nil {
		return err
	}
	if s.documents == nil {
		return apierrors.New(apierrors.ServiceUnavailable, "this server has no connection to the agents of nodes")
	}
	path, query := auth.NodePath(req.GetPath())
	doc, err := s.documents.Document(ctx, req.GetName(), &nodev1rpc.DocumentCall{Path: path, Query: query})
	if err != nil {
		return err
	}
	for body := doc.GetBody(); ; {
		n := min(len(body), documentPiece)
		if err := stream.Send(&httpbody.HttpBody{ContentType: doc.GetContentType(), Data: body[:n]}); err != nil {
			return err
		}
		if body = body[n:]; len(body) == 0 {
			return nil
		}
	}
}
