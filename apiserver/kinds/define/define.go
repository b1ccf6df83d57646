// Package define is what the packages of the API groups describe their kinds with. A kind is a function of its group's
// package that takes a Config and returns a Definition; package kinds lists them all.
package define

import (
	"context"

	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/tokens"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object"
	"monoplane.dev/rules/servicerange"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
)

// Config is what the kinds need of the server around them.
type Config struct {
	// Deps is what all registries share.
	Deps registry.Deps
	// Audit takes what an administrator must be able to find again.
	Audit *auth.Audit
	// Rights says who may do what.
	Rights *auth.Authorizer
	// Ingress says that Ingresses are served.
	Ingress bool
	// Logs streams the logs of containers; nil for none.
	Logs LogStreamer
	// Streams talks with what runs in containers; nil for nothing.
	Streams StreamSource
	// Usage says what nodes and their pods use; nil for nothing.
	Usage UsageSource
	// Documents fetches what agents serve; nil for none.
	Documents DocumentSource
	// Scheduler explains where pods can go; nil for none.
	Scheduler Explainer
	// Tokens issues the tokens of service accounts; nil for none.
	Tokens *tokens.Authority
	// Bearers tells whose a bearer token is; nil knows none.
	Bearers *authn.Bearers
	// Services is where the addresses and node ports of Services come from.
	Services servicerange.Ranges
	// PodNetwork says that pods have a network of their own, in which NetworkPolicies are enforced.
	PodNetwork bool
	// Namespaced are the kinds that are stored in namespaces. Package kinds fills it in.
	Namespaced []*object.Kind
}

// LogStreamer streams a container's log from the agent of a node.
type LogStreamer interface {
	// Logs calls send with each piece, in order, and returns when the log ends, ctx ends or send fails.
	Logs(ctx context.Context, node string, call *nodev1rpc.LogCall, send func([]byte) error) error
}

// StreamSource has the agent of a node talk with what runs in containers.
type StreamSource interface {
	Exec(ctx context.Context, node string, call *nodev1rpc.ExecCall) (Conversation, error)
	Attach(ctx context.Context, node string, call *nodev1rpc.AttachCall) (Conversation, error)
	PortForward(ctx context.Context, node string, call *nodev1rpc.PortForwardCall) (Conversation, error)
}

// Conversation goes both ways. One goroutine may Send while another calls Recv.
type Conversation interface {
	// Send passes on a piece of input, once there is room for it.
	Send(in *corev1.StreamInput) error
	// Recv returns the next piece of output. The first says that the agent has accepted the call; the last, before
	// io.EOF, has the status.
	Recv() (*corev1.StreamOutput, error)
	// Close ends it.
	Close()
}

// UsageSource asks the agent of a node what the node and its pods use.
type UsageSource interface {
	Usage(ctx context.Context, node string) (*nodev1rpc.UsageReport, error)
}

// DocumentSource asks the agent of a node for a document.
type DocumentSource interface {
	Document(ctx context.Context, node string, call *nodev1rpc.DocumentCall) (*nodev1rpc.Document, error)
}

// Explainer asks a scheduler what it thinks of the nodes for a pod.
type Explainer interface {
	// Explain asks the scheduler that the pod chose. It returns nil when there is none of that name.
	Explain(ctx context.Context, ask *schedulingv1rpc.ExplainCall) (*schedulingv1.PlacementReviewStatus, error)
}

// Definition says how a kind is served.
type Definition struct {
	// Strategy is what is special about what is stored; nil for a kind of which nothing is.
	Strategy *registry.Strategy
	// View serves what the strategy of another kind stores as this kind; nil for a kind that is stored itself.
	View *registry.View
	// Deprecated is what everybody is warned of who asks for objects of the kind; empty for nothing.
	Deprecated string
	// Server serves all methods, from the kind's backend (nil without a strategy) and those of other kinds, in place
	// of the generated adapter, which serves the standard ones.
	Server func(b object.Backend, backendOf func(*object.Kind) object.Backend) any
}

// Warned returns what the strategy of a kind that nothing acts on does before an object is created: it warns of that.
func Warned[T object.Object](text string) func(context.Context, T) ([]store.Guard, error) {
	return func(ctx context.Context, _ T) ([]store.Guard, error) {
		warning.Add(ctx, text)
		return nil, nil
	}
}
