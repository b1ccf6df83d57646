package monoplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"monoplane.dev/apiserver/listen"
	"monoplane.dev/apiserver/local"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/internal/datadir"
)

// ErrNodeRefused means that a node of this cluster belongs to another machine's key (spec: NODE-7): the data directory
// is a copy, or was restored from a snapshot, and the pods may still run where the data come from (spec: SAFE-5). The
// API serves; nothing is started or stopped on that node.
var ErrNodeRefused = errors.New("it belongs to another machine")

// Cluster is a running cluster. Make one with Start and end it with Stop.
type Cluster struct {
	cfg    Config
	store  *store.Store
	shared *client.Client
	client *client.Client
	// members are the nodes that have agents here.
	members []*member
	// starting bounds how many nodes start at the same time.
	starting chan struct{}
	// owner is whose the pods are in a runtime that others may use too.
	owner  string
	checks []rest.Check
	dir    *datadir.Dir
	// refused says why refusedNodes have no agents.
	refused      []error
	refusedNodes []string

	sockets *listen.Sockets
	local   *local.Server
	ingress controller.Ingress
	// inPods is where pods with a network of their own reach the API, once that is served.
	inPods atomic.Pointer[[]netip.AddrPort]

	// closers undo what Start did; Stop runs them last to first.
	closers []func(context.Context) error
	// components ends the scheduler, the controllers and the agents, which run with running; group waits for them.
	components context.CancelFunc
	running    context.Context
	group      *errgroup.Group

	emptying   *emptying
	done       chan struct{}
	finishOnce sync.Once
	err        error // why done was closed; nil for a wanted end. Written before done is closed.
	stopOnce   sync.Once
	stopErr    error
}

// Client returns clients that act as the administrator, in-process. What they send and receive is copied, so
// that the caller may change it.
func (c *Cluster) Client() *client.Client { return c.client }

// SharedClient is as Client without the copies: what it sends and receives belongs to the cluster and must
// not be changed. It is for programs that read very much.
func (c *Cluster) SharedClient() *client.Client { return c.shared }

// Transport serves the REST API to this process without a socket, so that
//
//	&rest.Config{Host: "monoplane", Transport: cluster.Transport()}
//
// gives programs on client-go (typed clients, informers, managers of controller-runtime) what a kubeconfig does, also
// inside a testing/synctest bubble. Requests are the administrator's, unless they bear a token of somebody else.
// Requests after Stop fail.
//
// Connections are upgraded, and the body of the answer is an io.ReadWriteCloser then. What client-go makes of a
// rest.Config for commands, ports and copies does not use its Transport, but dials by itself, which nobody answers:
// remotecommand.NewWebSocketExecutor and NewSPDYExecutor, portforward's dialers. Over SPDY they can be told, with an
// address that begins with http (package k8s.io/apimachinery/pkg/util/httpstream/spdy):
//
//	upgrader, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: cluster.Transport()})
//	executor, err := remotecommand.NewSPDYExecutorForTransports(upgrader, upgrader, "POST", url)
//	dialer := transportspdy.NewDialer(upgrader, &http.Client{Transport: upgrader}, "POST", url) // for portforward.New
//
// Their WebSockets need a listener. Client has the same without HTTP, as Pods.Exec, Attach and PortForward.
func (c *Cluster) Transport() http.RoundTripper { return c.local.Transport() }

// Address returns the host and port of the REST API, empty without one.
func (c *Cluster) Address() string { return c.sockets.REST() }

// GRPCAddress returns the host and port of the gRPC API, empty without one.
func (c *Cluster) GRPCAddress() string { return c.sockets.GRPC() }

// Kubeconfig returns the path of the administrator's kubeconfig, which exists when there is a listener.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.cfg.DataDir, datadir.Kubeconfig) }

// Done is closed when the cluster has failed, when its pods have stopped (see StopPods) or when an administrator has
// asked it to stop; Stop must still be called.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// finish closes Done. The first reason counts.
func (c *Cluster) finish(err error) {
	c.finishOnce.Do(func() {
		c.err = err
		close(c.done)
	})
}

// readyPoll is the time between two looks at the checks while the cluster starts.
const readyPoll = 2 * time.Millisecond

// Ready returns nil when the API serves, the scheduler and the controllers run and every node is Ready;
// otherwise what is missing.
func (c *Cluster) Ready(ctx context.Context) error {
	for _, check := range c.checks {
		if err := check.Run(ctx); err != nil {
			return fmt.Errorf("%s: %w", check.Name, err)
		}
	}
	return nil
}

// Refused returns an ErrNodeRefused that names the first node of this cluster that belongs to another machine, and
// why; nil when there is none. It does not change while the cluster runs: the next Start decides anew.
func (c *Cluster) Refused() error {
	if len(c.refused) == 0 {
		return nil
	}
	return c.refused[0]
}

// RefusedNodes returns the names of the nodes that belong to another machine.
func (c *Cluster) RefusedNodes() []string { return slices.Clone(c.refusedNodes) }

// WaitReady returns nil once Ready does. It fails when ctx ends or the cluster fails, and with ErrNodeRefused when a
// node is refused: it will not become ready, though the API serves.
func (c *Cluster) WaitReady(ctx context.Context) error {
	if err := c.Refused(); err != nil {
		return err
	}
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := c.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.done:
			return errors.Join(errors.New("the cluster ended before it was ready"), c.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w: %w", err, ctx.Err())
		}
	}
}

// Stop ends the cluster: first the components, then the listeners, then the store. Pods on the host runtime go
// on, for the next Start to adopt, unless StopPods was called. It returns the error that ended the cluster, if
// one did, with what went wrong while stopping. No goroutine of the cluster is left. Further calls return the
// same.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() {
		c.finish(nil)
		c.emptying.end()
		ctx, cancel := context.WithTimeout(ctx, stopGrace)
		defer cancel()
		c.stopErr = c.err
		if c.components != nil {
			c.components()
			if err := c.waitComponents(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, c.err) {
				c.stopErr = errors.Join(c.stopErr, err)
			}
		}
		for _, f := range slices.Backward(c.closers) {
			if err := f(ctx); err != nil {
				c.stopErr = errors.Join(c.stopErr, err)
			}
		}
	})
	return c.stopErr
}

// waitComponents waits for the components to end. One that does not end keeps nobody from closing the store.
func (c *Cluster) waitComponents(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- c.group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return errors.New("a component has not ended in time")
	}
}

// administered is what an administrator may do with a cluster from outside.
type administered struct{ *Cluster }

// End begins the end of the cluster.
func (a administered) End() { a.finish(nil) }

// RotateSecretsKey makes a new key and encrypts all Secrets with it.
func (a administered) RotateSecretsKey(ctx context.Context) (key string, secrets int, err error) {
	id, n, err := a.store.RotateKeys(ctx)
	return id.String(), n, err
}

// SecretsKey returns the id of the key that encrypts Secrets.
func (a administered) SecretsKey() string { return a.store.CurrentKey() }

// Snapshot writes a consistent copy of all data.
func (a administered) Snapshot(ctx context.Context, w io.Writer) error {
	return a.store.Snapshot(ctx, w)
}

// onStop adds what Stop must undo.
func (c *Cluster) onStop(f func(context.Context) error) { c.closers = append(c.closers, f) }

// ReleaseMemory gives back memory in which the process sees the database's file, some tens of megabytes after much has
// been written. It is for times when little happens, and costs nothing but finding in the system's page cache what is
// needed again.
func (c *Cluster) ReleaseMemory(ctx context.Context) error { return c.store.ReleasePages(ctx) }
