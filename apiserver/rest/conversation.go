package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest/upgrade"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// serveConversation upgrades the connection for a method whose streams go both ways, once the service has accepted the
// call. It ends with the connection, and with the server.
func (h *Handler) serveConversation(w http.ResponseWriter, r *http.Request, rt *route, v values) {
	req, ports, err := h.conversationRequest(r, rt, v)
	if err != nil {
		h.writeError(w, r, err)
		return
	}
	seat, err := h.seat(r, rt)
	if err != nil {
		h.writeError(w, r, err)
		return
	}
	defer seat.Release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.closing, cancel)()
	s, err := rt.openBoth(ctx, h.cfg.Conn, req)
	if err != nil {
		if h.closing.Err() != nil {
			err = apierrors.New(apierrors.ServiceUnavailable, "the server is stopping")
		}
		h.writeError(w, r, err)
		return
	}
	ask, ok := req.(interface {
		GetStdin() bool
		GetStdout() bool
		GetStderr() bool
		GetTty() bool
	})
	switch {
	case !ok:
		// What was opened has only said that the pod is there: each connection is a call of its own.
		dial := func(ctx context.Context, port int32) (upgrade.Stream, error) {
			return rt.openBoth(ctx, h.cfg.Conn, &corev1rpc.PortForwardPodRequest{
				Namespace: v.list[0], Name: v.list[1], Ports: []int32{port},
			})
		}
		if upgrade.WithPorts(r) {
			upgrade.ForwardPorts(ctx, w, r, v.list[1], ports, dial)
		} else {
			upgrade.Forward(ctx, w, r, v.list[1], dial)
		}
	case upgrade.IsWebSocket(r):
		upgrade.WebSocket(ctx, w, r, stopping{s, h.closing}, upgrade.ProbeAfter)
	default:
		upgrade.SPDY(ctx, w, r, upgrade.Wanted{
			Stdin: ask.GetStdin(), Stdout: ask.GetStdout(), Stderr: ask.GetStderr(), TTY: ask.GetTty(),
		}, stopping{s, h.closing})
	}
}

// conversationRequest reads the first message, from the path and the query, and the ports to forward if they are named
// there.
func (h *Handler) conversationRequest(r *http.Request, rt *route, v values) (proto.Message, []int32, error) {
	if !upgrade.IsWebSocket(r) && !upgrade.IsSPDY(r) {
		return nil, nil, apierrors.New(apierrors.BadRequest, "Upgrade request required")
	}
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, nil, err
	}
	req, err := rt.request(&exchange{h: h, r: r, route: rt, query: query}, v)
	if err != nil {
		return nil, nil, err
	}
	switch req := req.(type) {
	case *corev1rpc.PortForwardPodRequest:
		ports := req.GetPorts()
		req.Ports = nil // Each connection is a call of its own, and old clients name them here as well.
		if upgrade.WithPorts(r) {
			return req, ports, portsOfRequest(ports)
		}
	case interface {
		GetStdin() bool
		GetStdout() bool
		GetStderr() bool
	}:
		if !req.GetStdin() && !req.GetStdout() && !req.GetStderr() {
			return nil, nil, apierrors.New(apierrors.BadRequest, "you must specify at least 1 of stdin, stdout, stderr")
		}
	}
	return req, nil, nil
}

// portsOfRequest refuses what cannot be forwarded.
func portsOfRequest(ports []int32) error {
	switch {
	case len(ports) == 0:
		return apierrors.New(apierrors.BadRequest, `query parameter "ports" is required`)
	case len(ports) > upgrade.MaxPorts:
		return apierrors.New(apierrors.BadRequest, "%d ports are more than %d", len(ports), upgrade.MaxPorts)
	}
	for _, port := range ports {
		if port < 1 || port > 65535 {
			return apierrors.New(apierrors.BadRequest, "port %d is not between 1 and 65535", port)
		}
	}
	return nil
}

// both is a stream to the service that goes both ways.
type both struct {
	stream grpc.ClientStream
	route  *route
	cancel context.CancelFunc
}

// openBoth returns a stream that the service has accepted. It is to be closed, or its context ended.
func (r *route) openBoth(ctx context.Context, conn grpc.ClientConnInterface, req proto.Message) (both, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := conn.NewStream(ctx, r.stream, r.rpc)
	if err == nil {
		err = r.accepted(stream, req)
	}
	if err != nil {
		cancel()
		return both{}, err
	}
	return both{stream, r, cancel}, nil
}

// accepted sends the first message, and waits for the header.
func (r *route) accepted(stream grpc.ClientStream, req proto.Message) error {
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	header, err := stream.Header()
	if err != nil || header != nil {
		return err
	}
	// Without a header no message comes, only the end, which says why.
	if err := stream.RecvMsg(r.output.New().Interface()); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Close implements upgrade.Stream.
func (b both) Close() { b.cancel() }

// Send implements upgrade.Stream.
func (b both) Send(in *corev1.StreamInput) error {
	m := b.route.input.New()
	m.Set(b.route.conversation, protoreflect.ValueOfMessage(in.ProtoReflect()))
	return b.stream.SendMsg(m.Interface())
}

// Recv implements upgrade.Stream.
func (b both) Recv() (*corev1.StreamOutput, error) {
	out := &corev1.StreamOutput{}
	if err := b.stream.RecvMsg(out); err != nil {
		return nil, err
	}
	return out, nil
}

// stopping is a stream that says why it has ended when that is because the server stops.
type stopping struct {
	both
	closing context.Context
}

// Recv implements upgrade.Stream.
func (s stopping) Recv() (*corev1.StreamOutput, error) {
	out, err := s.both.Recv()
	if err != nil && s.closing.Err() != nil {
		err = apierrors.New(apierrors.ServiceUnavailable, "the server is stopping")
	}
	return out, err
}
