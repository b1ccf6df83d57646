// Package schedulerstreams is the server's side of the SchedulerStreams service: it asks a scheduler what it thinks of
// the nodes for a pod, over streams that the scheduler opened. The mechanism and its guarantees are those of package
// calls.
//
// Guarantees besides: only the identity system:scheduler listens and answers. Several schedulers can be connected,
// each with scheduler names of its own.
//
// The Broker does not authorize the user who asks, nor does it look at the pod.
package schedulerstreams

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/calls"
)

const (
	// maxAnswer bounds an answer in bytes; those for 100 000 nodes are smaller.
	maxAnswer = 64 << 20
	// callTimeout bounds a whole call; schedulers answer much sooner, or say that they have no time.
	callTimeout = 30 * time.Second
	// maxNames bounds the scheduler names of one scheduler.
	maxNames = 100
)

// Config says how a Broker behaves. The zero value is usable.
type Config struct {
	// AnswerTimeout is how long a scheduler may take to begin its answer; 10 s when zero.
	AnswerTimeout time.Duration
	// MaxCalls is how many calls one scheduler name may serve at a time; 64 when zero. More are refused.
	MaxCalls int
	// Logger gets one line when a scheduler begins or ceases to listen; discarded when nil.
	Logger *slog.Logger
}

// Broker brings callers and schedulers together. It implements schedulingv1rpc.SchedulerStreamsServer. Use New.
type Broker struct {
	schedulingv1rpc.UnimplementedSchedulerStreamsServer

	streams *calls.Broker[*schedulingv1rpc.SchedulerCall]
}

// New returns a Broker that nobody listens to yet.
func New(cfg Config) *Broker {
	if cfg.MaxCalls <= 0 {
		cfg.MaxCalls = 64
	}
	return &Broker{streams: calls.New[*schedulingv1rpc.SchedulerCall](calls.Config{
		Who:           func(name string) string { return fmt.Sprintf("the scheduler %q", name) },
		MayServe:      mayServe,
		AnswerTimeout: cfg.AnswerTimeout, MaxCalls: cfg.MaxCalls, Logger: cfg.Logger,
	})}
}

// Explain asks the scheduler that the pod of the call chose. It returns nil when other schedulers are connected but
// not that one. Errors: what the scheduler says, ServiceUnavailable when none is connected or it goes away, Timeout
// when it does not answer, TooManyRequests.
func (b *Broker) Explain(
	ctx context.Context, ask *schedulingv1rpc.ExplainCall,
) (*schedulingv1.PlacementReviewStatus, error) {
	name := ask.GetPod().GetSpec().GetSchedulerName()
	switch named, anybody := b.streams.Listening(name); {
	case !anybody:
		return nil, apierrors.New(apierrors.ServiceUnavailable,
			"no scheduler is connected to this server, and only a scheduler knows where pods can go").WithRetryAfter(1)
	case !named:
		return nil, nil
	}
	var answer []byte
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := b.streams.Do(limited, name, func(id string) *schedulingv1rpc.SchedulerCall {
		return &schedulingv1rpc.SchedulerCall{Id: id, Request: &schedulingv1rpc.SchedulerCall_Explain{Explain: ask}}
	}, func(data []byte) error {
		if len(answer)+len(data) > maxAnswer {
			return apierrors.New(apierrors.InternalError, "the scheduler's answer has more than %d bytes", maxAnswer)
		}
		answer = append(answer, data...)
		return nil
	})
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return nil, apierrors.New(apierrors.Timeout, "the scheduler %q did not answer within %s", name, callTimeout)
		}
		return nil, err
	}
	status := &schedulingv1.PlacementReviewStatus{}
	if err := proto.Unmarshal(answer, status); err != nil {
		return nil, fmt.Errorf("the answer of the scheduler %q: %w", name, err)
	}
	return status, nil
}

// Listen implements schedulingv1rpc.SchedulerStreamsServer.
func (b *Broker) Listen(
	req *schedulingv1rpc.ListenSchedulerRequest, stream grpc.ServerStreamingServer[schedulingv1rpc.SchedulerCall],
) error {
	if n := len(req.GetSchedulerNames()); n == 0 || n > maxNames {
		return apierrors.New(apierrors.BadRequest, "a scheduler has between 1 and %d names", maxNames)
	}
	return b.streams.Listen(req.GetSchedulerNames(), stream)
}

// Answer implements schedulingv1rpc.SchedulerStreamsServer.
func (b *Broker) Answer(stream grpc.BidiStreamingServer[nodev1rpc.Frame, nodev1rpc.Frame]) error {
	return b.streams.Answer(stream)
}

// mayServe checks that the request comes from a scheduler.
func mayServe(ctx context.Context, name string) error {
	u := authn.UserFrom(ctx)
	if u == nil {
		return apierrors.New(apierrors.Unauthorized, "no identity")
	}
	if name == "" || u.Name != authn.SchedulerName {
		return apierrors.New(apierrors.Forbidden, "%s may not serve scheduler %q", u.Name, name)
	}
	return nil
}
