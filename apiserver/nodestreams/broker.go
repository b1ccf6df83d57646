package nodestreams

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/calls"
	"monoplane.dev/apiserver/kinds/define"
)

// Config says how a Broker behaves. The zero value is usable.
type Config struct {
	// Machine returns the key of the machine that a node is registered for, empty for none, and whether the node is
	// registered at all (spec: NODE-7). Nil: any agent of the node's name serves it.
	Machine func(ctx context.Context, node string) (key string, registered bool, err error)
	// AnswerTimeout is how long an agent may take to begin its answer; 10 s when zero.
	AnswerTimeout time.Duration
	// MaxCalls is how many calls one node may serve at a time; the constant of this name when zero. More are refused,
	// and so are those of a user who has as many as are left for all others.
	MaxCalls int
	// Shared: an agent that does not listen here may listen at another server of the same etcd.
	Shared bool
	// Logger gets one line when an agent begins or ceases to listen; discarded when nil.
	Logger *slog.Logger
}

// Broker brings callers and agents together. It implements nodev1rpc.NodeStreamsServer. Use New.
type Broker struct {
	nodev1rpc.UnimplementedNodeStreamsServer

	machine func(ctx context.Context, node string) (key string, registered bool, err error)
	streams *calls.Broker[*nodev1rpc.Call]
}

// MaxCalls is how many calls one node serves at a time where nobody says otherwise.
const MaxCalls = 1024

// New returns a Broker that nobody listens to yet.
func New(cfg Config) *Broker {
	if cfg.MaxCalls <= 0 {
		cfg.MaxCalls = MaxCalls
	}
	b := &Broker{machine: cfg.Machine}
	absent := " (simulated nodes serve neither logs nor exec, attach and port-forward)"
	if cfg.Shared {
		absent = " to this server: a node that is Ready is connected to another one of the same etcd, which can be asked" +
			absent
	}
	b.streams = calls.New[*nodev1rpc.Call](calls.Config{
		Who:    func(node string) string { return fmt.Sprintf("the agent of node %q", node) },
		Absent: absent,
		MayServe: func(ctx context.Context, node string) error {
			// While the Node is deleted, who has listened for it goes on: its pods are still there.
			_, err := b.mayServe(ctx, node)
			return err
		},
		AnswerTimeout: cfg.AnswerTimeout, MaxCalls: cfg.MaxCalls, Logger: cfg.Logger,
	})
	return b
}

// Logs streams a container's log from the agent of node, which must hold the pod. It calls send with each
// piece, in order, on the caller's goroutine, and returns when the log ends, ctx ends, or send fails.
// Errors: what the agent says (such as NotFound or BadRequest), ServiceUnavailable when the agent is not
// connected or goes away, Timeout when it does not answer, TooManyRequests. spec: CTR-8
func (b *Broker) Logs(ctx context.Context, node string, ask *nodev1rpc.LogCall, send func([]byte) error) error {
	return b.streams.Do(ctx, node, func(id string) *nodev1rpc.Call {
		return &nodev1rpc.Call{Id: id, Request: &nodev1rpc.Call_Log{Log: ask}}
	}, send)
}

// Exec has the agent of node run a command in a container. The caller closes the conversation. Errors: as for Logs.
// spec: CTR-9
func (b *Broker) Exec(ctx context.Context, node string, ask *nodev1rpc.ExecCall) (define.Conversation, error) {
	return b.open(ctx, node, &nodev1rpc.Call{Request: &nodev1rpc.Call_Exec{Exec: ask}})
}

// Attach has the agent of node join a container's first process, as Exec.
func (b *Broker) Attach(ctx context.Context, node string, ask *nodev1rpc.AttachCall) (define.Conversation, error) {
	return b.open(ctx, node, &nodev1rpc.Call{Request: &nodev1rpc.Call_Attach{Attach: ask}})
}

// PortForward has the agent of node connect to a port of a pod, as Exec.
func (b *Broker) PortForward(
	ctx context.Context, node string, ask *nodev1rpc.PortForwardCall,
) (define.Conversation, error) {
	return b.open(ctx, node, &nodev1rpc.Call{Request: &nodev1rpc.Call_PortForward{PortForward: ask}})
}

func (b *Broker) open(ctx context.Context, node string, call *nodev1rpc.Call) (define.Conversation, error) {
	c, err := b.streams.Open(ctx, node, func(id string) *nodev1rpc.Call {
		call.Id = id
		return call
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Usage asks the agent of node what the node and its pods use. Errors: as for Logs.
func (b *Broker) Usage(ctx context.Context, node string) (*nodev1rpc.UsageReport, error) {
	report := &nodev1rpc.UsageReport{}
	call := &nodev1rpc.Call{Request: &nodev1rpc.Call_Usage{Usage: &nodev1rpc.UsageCall{}}}
	return report, b.ask(ctx, node, call, report)
}

// Document asks the agent of node for what kubelets serve at a path. Errors: as for Logs.
func (b *Broker) Document(ctx context.Context, node string, ask *nodev1rpc.DocumentCall) (*nodev1rpc.Document, error) {
	doc := &nodev1rpc.Document{}
	return doc, b.ask(ctx, node, &nodev1rpc.Call{Request: &nodev1rpc.Call_Document{Document: ask}}, doc)
}

// RemoveVolume has the agent of node remove the directory of a volume. Errors: as for Logs.
func (b *Broker) RemoveVolume(ctx context.Context, node, volume string) error {
	return b.ask(ctx, node, &nodev1rpc.Call{Request: &nodev1rpc.Call_RemoveVolume{
		RemoveVolume: &nodev1rpc.RemoveVolumeCall{Name: volume},
	}}, &nodev1rpc.RemoveVolumeCall{})
}

// ask makes a call whose answer is one message, which it fills in.
func (b *Broker) ask(ctx context.Context, node string, call *nodev1rpc.Call, answer proto.Message) error {
	var data []byte
	err := b.streams.Do(ctx, node, func(id string) *nodev1rpc.Call {
		call.Id = id
		return call
	}, func(piece []byte) error {
		data = append(data, piece...)
		return nil
	})
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(data, answer); err != nil {
		return apierrors.NewInternal(fmt.Errorf("the agent of node %q has answered nonsense: %w", node, err))
	}
	return nil
}

// Listen implements nodev1rpc.NodeStreamsServer.
func (b *Broker) Listen(req *nodev1rpc.ListenRequest, stream grpc.ServerStreamingServer[nodev1rpc.Call]) error {
	registered, err := b.mayServe(stream.Context(), req.GetNode())
	if err != nil {
		return err
	}
	if !registered {
		return apierrors.New(apierrors.ServiceUnavailable, "node %q is not registered", req.GetNode())
	}
	return b.streams.Listen([]string{req.GetNode()}, stream)
}

// Answer implements nodev1rpc.NodeStreamsServer.
func (b *Broker) Answer(stream grpc.BidiStreamingServer[nodev1rpc.Frame, nodev1rpc.Frame]) error {
	return b.streams.Answer(stream)
}

// mayServe checks that the request comes from node's own agent, on the machine that is registered as node. It returns
// whether any is.
func (b *Broker) mayServe(ctx context.Context, node string) (registered bool, err error) {
	u := authn.UserFrom(ctx)
	if u == nil {
		return false, apierrors.New(apierrors.Unauthorized, "no identity")
	}
	if node == "" || u.Name != authn.NodePrefix+node || !slices.Contains(u.Groups, authn.NodesGroup) {
		return false, apierrors.New(apierrors.Forbidden, "%s may not serve node %q", u.Name, node)
	}
	if b.machine == nil {
		return true, nil
	}
	key, registered, err := b.machine(ctx, node)
	if err == nil && key != "" && key != u.UID {
		err = apierrors.New(apierrors.Forbidden, "%s may not serve node %q: the name belongs to another machine", u.Name,
			node)
	}
	return registered, err
}
