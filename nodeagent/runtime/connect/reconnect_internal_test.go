package connect

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/fake"
)

// line is where a runtime listens at times.
type line struct {
	mu    sync.Mutex
	l     *bufconn.Listener // nil while nobody listens
	tries []time.Time
}

func (l *line) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	l.tries = append(l.tries, time.Now())
	at := l.l
	l.mu.Unlock()
	if at == nil {
		return nil, errors.New("connection refused")
	}
	return at.DialContext(ctx)
}

// listen serves a runtime until the returned function is called.
func (l *line) listen() (end func()) {
	at, s := bufconn.Listen(1<<16), grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, fake.New(fake.Config{}))
	served := make(chan error, 1)
	go func() { served <- s.Serve(at) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.l = at
	return func() {
		l.mu.Lock()
		l.l = nil
		l.mu.Unlock()
		s.Stop()
		<-served
	}
}

// However long a runtime was away, it is connected to again within a fraction of a second of its coming back, without
// anybody's asking, and while it is away it is tried a few times a second and not more. spec: NODE-2
func TestConnectsAgain(t *testing.T) {
	for _, away := range []time.Duration{time.Second, time.Minute, time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &line{}
				end := l.listen()
				conn, err := grpc.NewClient("passthrough:///runtime", append(options(), grpc.WithContextDialer(l.dial))...)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := conn.Close(); err != nil {
						t.Error(err)
					}
					end()
					synctest.Wait()
				}()
				ask := func(opts ...grpc.CallOption) error {
					_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{}, opts...)
					return err
				}
				if err := ask(); err != nil {
					t.Fatal(err)
				}
				end()
				synctest.Wait()
				if ask() == nil {
					t.Fatal("a runtime that is away has answered")
				}
				l.mu.Lock()
				l.tries = nil
				l.mu.Unlock()
				time.Sleep(away)
				l.mu.Lock()
				tries := len(l.tries)
				l.mu.Unlock()
				if most := int(away/(reconnectMost*8/10)) + 5; tries > most {
					t.Errorf("%d attempts in %s, want at most %d", tries, away, most)
				}
				end = l.listen()
				back := time.Now()
				if err := ask(grpc.WaitForReady(true)); err != nil {
					t.Fatal(err)
				}
				took := time.Since(back)
				t.Logf("away for %s, %d attempts, connected again after %s", away, tries, took)
				if limit := reconnectMost * 12 / 10; took > limit {
					t.Errorf("connected again after %s, want %s at most", took, limit)
				}
			})
		})
	}
}
