// Package admin serves monoplane.admin.v1.Admin: an administrator stops the server or the agent of a node, or copies
// the server's data. What a stop is belongs to the program around the server.
package admin

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
)

// snapshotChunk is the size of the pieces in which a snapshot is sent, well below gRPC's message limit.
const snapshotChunk = 256 << 10

// Cluster is what is administered.
type Cluster interface {
	// StopPods begins to stop all pods, or joins in, and returns when nothing runs; it reports the pods that are waited
	// for. The whole cluster ends after it.
	StopPods(ctx context.Context, report func(pods []string)) error
	// End begins to end the cluster at once. The pods are left as they are.
	End()
	// Snapshot writes a consistent copy of all data.
	Snapshot(ctx context.Context, w io.Writer) error
	// SecretsKey returns the id of the key with which Secrets are encrypted, and RotateSecretsKey encrypts them with a
	// new one: it returns that one's id, and how many there were.
	SecretsKey() string
	RotateSecretsKey(ctx context.Context) (key string, secrets int, err error)
	// StopNode ends the agent of a node and StartNode starts it again; they report whether they had to.
	StopNode(ctx context.Context, name string) (stopped bool, err error)
	StartNode(ctx context.Context, name string) (started bool, err error)
}

// Server serves monoplane.admin.v1.Admin. The authorizer lets only administrators call it.
type Server struct {
	adminv1rpc.UnimplementedAdminServer
	cluster Cluster
}

// New returns the service for a cluster.
func New(c Cluster) *Server { return &Server{cluster: c} }

// Stop stops the pods, then begins the stop of the whole cluster, which is left to whoever waits for Done, so that
// this call can end first. A stop that has begun goes on when the caller goes; another caller joins it, and may leave
// the pods after all.
func (s *Server) Stop(req *adminv1rpc.StopRequest, stream grpc.ServerStreamingServer[adminv1rpc.StopProgress]) error {
	if req.GetLeavePods() {
		s.cluster.End()
		return nil
	}
	err := s.cluster.StopPods(stream.Context(), func(pods []string) {
		_ = stream.Send(&adminv1rpc.StopProgress{Pods: pods}) // a caller that has gone ends the context, too
	})
	if err != nil && stream.Context().Err() == nil {
		return apierrors.New(apierrors.Timeout, "the server stops, but %v", err)
	}
	return err
}

// Snapshot streams a consistent copy of all data.
func (s *Server) Snapshot(
	_ *adminv1rpc.SnapshotRequest, stream grpc.ServerStreamingServer[adminv1rpc.SnapshotChunk],
) error {
	if err := stream.Send(&adminv1rpc.SnapshotChunk{SecretsKey: s.cluster.SecretsKey()}); err != nil {
		return err
	}
	return s.cluster.Snapshot(stream.Context(), &chunkWriter{stream})
}

// RotateSecretsKey serves Admin.RotateSecretsKey.
func (s *Server) RotateSecretsKey(
	ctx context.Context, _ *adminv1rpc.RotateSecretsKeyRequest,
) (*adminv1rpc.RotateSecretsKeyResponse, error) {
	key, n, err := s.cluster.RotateSecretsKey(ctx)
	switch {
	case errors.Is(err, store.ErrSharedKeys):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, err
	}
	return &adminv1rpc.RotateSecretsKeyResponse{Key: key, Secrets: int32(n)}, nil //nolint:gosec // a number of objects
}

// StopNode serves Admin.StopNode.
func (s *Server) StopNode(ctx context.Context, req *adminv1rpc.StopNodeRequest) (*adminv1rpc.StopNodeResponse, error) {
	stopped, err := s.cluster.StopNode(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &adminv1rpc.StopNodeResponse{Stopped: stopped}, nil
}

// StartNode serves Admin.StartNode.
func (s *Server) StartNode(
	ctx context.Context, req *adminv1rpc.StartNodeRequest,
) (*adminv1rpc.StartNodeResponse, error) {
	started, err := s.cluster.StartNode(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &adminv1rpc.StartNodeResponse{Started: started}, nil
}

// chunkWriter sends what is written to it.
type chunkWriter struct {
	stream grpc.ServerStreamingServer[adminv1rpc.SnapshotChunk]
}

var _ io.Writer = (*chunkWriter)(nil)

func (w *chunkWriter) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		size := min(len(p), snapshotChunk)
		// The message is the receiver's once sent, the buffer the writer's.
		if err := w.stream.Send(&adminv1rpc.SnapshotChunk{Data: append([]byte(nil), p[:size]...)}); err != nil {
			return n, err
		}
		n += size
		p = p[size:]
	}
	return n, nil
}
