package connect_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/connect"
	"monoplane.dev/nodeagent/runtime/fake"
)

// serveSocket serves gRPC on a unix socket until the test ends, and returns the socket's path.
func serveSocket(t *testing.T, name string, register func(*grpc.Server)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

// A wrong endpoint is said in one line that helps.
func TestRuntimeEndpoint(t *testing.T) {
	open := func(endpoint string) error {
		conn, err := connect.Remote(t.Context(), endpoint)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	nothing := serveSocket(t, "s", func(*grpc.Server) {})
	for endpoint, want := range map[string]string{
		"/run/x.sock":           "must be a unix socket such as unix:///",
		"unix://run/x.sock":     "must be a unix socket such as unix:///", // one slash too few: not /x.sock
		"tcp://127.0.0.1:1":     "must be a unix socket such as unix:///",
		"unix://":               "must be a unix socket such as unix:///",
		"unix:///none/x.sock":   "does not answer: ",
		"unix://" + nothing:     "does not serve CRI v1: unknown service runtime.v1.RuntimeService",
		"unix://" + nothing[1:]: "must be a unix socket such as unix:///",
	} {
		err := open(endpoint)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), endpoint) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
	// A path may hold what a URL writes with percent signs.
	path := serveSocket(t, "a b%41", func(s *grpc.Server) {
		runtimeapi.RegisterRuntimeServiceServer(s,
			fake.New(fake.Config{}))
	})
	if err := open("unix://" + strings.ReplaceAll(strings.ReplaceAll(path, "%", "%25"), " ", "%20")); err != nil {
		t.Error(err)
	}
}
