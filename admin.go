package monoplane

import (
	"io"

	"google.golang.org/grpc"

	adminv1 "monoplane.dev/api/admin/v1"
	"monoplane.dev/apierrors"
)

// snapshotChunk is the size of the pieces in which a snapshot is sent, well below gRPC's message limit.
const snapshotChunk = 256 << 10

// adminServer serves monoplane.admin.v1.Admin. The authorizer lets only administrators call it.
type adminServer struct {
	adminv1.UnimplementedAdminServer
	cluster *Cluster
}

// Stop stops the pods, then begins the stop of the whole cluster. The stop itself is left to whoever waits
// for Done, so that this call can end first.
func (a *adminServer) Stop(req *adminv1.StopRequest, stream grpc.ServerStreamingServer[adminv1.StopProgress]) error {
	if !a.cluster.stopRequested.CompareAndSwap(false, true) {
		return apierrors.New(apierrors.ServiceUnavailable, "the server is stopping already")
	}
	if !req.GetLeavePods() {
		err := a.cluster.StopPods(stream.Context(), func(pods []string) {
			// A caller that has gone ends the context, which ends StopPods.
			_ = stream.Send(&adminv1.StopProgress{Pods: pods})
		})
		if err != nil {
			a.cluster.stopRequested.Store(false)
			return err
		}
	}
	a.cluster.finish(nil)
	return nil
}

// Snapshot streams a consistent copy of all data.
func (a *adminServer) Snapshot(_ *adminv1.SnapshotRequest, stream grpc.ServerStreamingServer[adminv1.SnapshotChunk]) error {
	return a.cluster.store.Snapshot(stream.Context(), &chunkWriter{stream})
}

// chunkWriter sends what is written to it.
type chunkWriter struct {
	stream grpc.ServerStreamingServer[adminv1.SnapshotChunk]
}

var _ io.Writer = (*chunkWriter)(nil)

func (w *chunkWriter) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		size := min(len(p), snapshotChunk)
		// The message is the receiver's once sent, the buffer the writer's.
		if err := w.stream.Send(&adminv1.SnapshotChunk{Data: append([]byte(nil), p[:size]...)}); err != nil {
			return n, err
		}
		n += size
		p = p[size:]
	}
	return n, nil
}
