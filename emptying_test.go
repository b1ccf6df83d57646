package monoplane_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"monoplane.dev"
	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
	"monoplane.dev/internal/dirlock"
	"monoplane.dev/nodeagent/network"
)

// stubbornPod ignores TERM for its grace of so many seconds, on a node.
func stubbornPod(t *testing.T, c *monoplane.Cluster, name, node string, grace int64) {
	t.Helper()
	p := newPod(name)
	p.Metadata.Annotations = map[string]string{"fake.monoplane.dev/ignore-term": "true"}
	p.Spec.TerminationGracePeriodSeconds, p.Spec.NodeName = &grace, node
	create(t, c.Client(), p)
	if err := waitFor(t.Context(), c.Client(), name, running); err != nil {
		t.Fatal(err)
	}
}

// stopCall asks for a stop as `monoplane down` does, and returns what it was told, and how it ended.
func stopCall(ctx context.Context, c *monoplane.Cluster, leave bool) (told []string, err error) {
	stream, err := adminv1rpc.NewAdminClient(c.Client().Conn()).Stop(ctx, &adminv1rpc.StopRequest{LeavePods: leave})
	if err != nil {
		return nil, err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return told, err
		}
		told = append(told, strings.Join(m.GetPods(), " "))
	}
}

// A stop that its caller leaves goes on: the cluster is not ready from its beginning on, others can wait for it, and
// it ends by itself when the pods of all nodes have stopped. spec: design decision 13
func TestStopBelongsToTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Nodes: 3})
		for i := range 3 {
			stubbornPod(t, c, fmt.Sprint("p", i), fmt.Sprint("node-", i), int64(10*(i+1)))
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if told, err := stopCall(ctx, c, false); err == nil || len(told) == 0 {
			t.Errorf("cut short: told %q, %v", told, err)
		}
		select {
		case <-c.Stopping():
		default:
			t.Error("it does not say that it is stopping")
		}
		if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(),
			"shutdown: the pods are being stopped") {
			t.Errorf("readiness: %v", err)
		}
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				var last, most int
				err := c.StopPods(t.Context(), func(pods []string) { last, most = len(pods), max(most, len(pods)) })
				if err != nil {
					t.Errorf("a waiter: %v", err)
				}
				if last != 0 || most != 3 {
					t.Errorf("a waiter was told of %d pods, and of %d at the end", most, last)
				}
			})
		}
		<-c.Done()
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("the stop took %s, want the longest grace of 30 s", took)
		}
		waiters.Wait()
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Pods that are being stopped are left when an administrator, or the program, wants the end at once, and everybody who
// waits is told. spec: design decision 13
func TestStopIsGivenUp(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *monoplane.Cluster){
		"by an administrator": func(t *testing.T, c *monoplane.Cluster) {
			if _, err := stopCall(t.Context(), c, true); err == nil || err.Error() != "EOF" {
				t.Errorf("the call ended with %v", err)
			}
		},
		"by the program": func(t *testing.T, c *monoplane.Cluster) {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, monoplane.Config{})
				stubbornPod(t, c, "p", "node", 600)
				waits := make(chan error, 1)
				go func() { waits <- c.StopPods(context.Background(), nil) }()
				time.Sleep(time.Second)
				began := time.Now()
				end(t, c)
				if err := <-waits; !errors.Is(err, monoplane.ErrLeft) {
					t.Errorf("who waits is told %v", err)
				}
				<-c.Done()
				if err := c.Ready(t.Context()); err == nil {
					t.Error("it is ready")
				}
				if err := c.Stop(context.Background()); err != nil {
					t.Error(err)
				}
				if err := c.StopPods(context.Background(), nil); !errors.Is(err, monoplane.ErrLeft) {
					t.Errorf("afterwards: %v", err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// networkRuntime has a network that is slow to end, or cannot be taken away.
type networkRuntime struct {
	monoplane.Runtime
	closing time.Duration
	down    func(context.Context) error
}

func (r networkRuntime) Open(
	ctx context.Context, node, dir string, logger *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	conn, end, err := r.Runtime.Open(ctx, node, dir, logger)
	return conn, func() error {
		time.Sleep(r.closing)
		return end()
	}, err
}

func (networkRuntime) HasNetwork() bool { return false }

func (networkRuntime) ServeNetwork(context.Context, network.Node, *slog.Logger) error { return nil }

func (networkRuntime) DialPod(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no network")
}

func (r networkRuntime) Down(ctx context.Context, _ string, _ *slog.Logger) error { return r.down(ctx) }

// Of a cluster whose pods were stopped the network is taken away, however long the rest has taken to end. That nothing
// is left is said while nobody else can have the directory, and only then when it is true.
func TestEmptied(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		leave, slow bool
		fails       error
		down, said  int
	}{
		"all is taken away":                 {down: 1, said: 1},
		"late":                              {slow: true, down: 1, said: 1},
		"the network cannot":                {fails: refused, down: 1},
		"the pods are left":                 {leave: true},
		"the pods are left, and it is late": {leave: true, slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var downs, saids int
				runtime := networkRuntime{Runtime: monoplane.FakeRuntime(), down: func(ctx context.Context) error {
					downs++
					return errors.Join(ctx.Err(), c.fails)
				}}
				if c.slow {
					runtime.closing = time.Minute
				}
				dir := t.TempDir()
				cluster, err := monoplane.Start(t.Context(), monoplane.Config{DataDir: dir, Runtime: runtime,
					Emptied: func() error {
						saids++
						_, err := dirlock.Acquire(dir)
						if used := (*dirlock.InUseError)(nil); !errors.As(err, &used) {
							t.Errorf("the directory is not locked: %v", err)
						}
						return nil
					}})
				if err != nil {
					t.Fatal(err)
				}
				if err := cluster.WaitReady(t.Context()); err != nil {
					t.Error(err)
				}
				if !c.leave {
					err = cluster.StopPods(t.Context(), nil)
				}
				if stopped := cluster.Stop(context.Background()); err != nil || !errors.Is(stopped, c.fails) {
					t.Errorf("the end: %v, %v", err, stopped)
				}
				if downs != c.down || saids != c.said {
					t.Errorf("the network was taken away %d times, want %d; it was said %d times, want %d", downs, c.down, saids,
						c.said)
				}
			})
		})
	}
}
