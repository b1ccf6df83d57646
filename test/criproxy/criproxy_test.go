package criproxy_test

import (
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/fake"
	"monoplane.dev/test/criproxy"
)

// Each fault shows the client what it is named for, and the runtime what it says: that the call was carried out so
// many times. After Mend the truth is told.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "runtime"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtime := fake.New(fake.Config{})
	runtimeapi.RegisterRuntimeServiceServer(server, runtime)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	p, err := criproxy.New(filepath.Join(dir, "proxy"), "unix://"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(p.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := runtimeapi.NewRuntimeServiceClient(conn)
	made := func() int {
		got, err := runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.GetItems())
	}
	for fault, want := range map[criproxy.Fault]struct {
		code codes.Code
		made int
	}{
		criproxy.None: {codes.OK, 1}, criproxy.Slow: {codes.OK, 1}, criproxy.Twice: {codes.OK, 2},
		criproxy.Mute: {codes.Unavailable, 0}, criproxy.DoneMute: {codes.Unavailable, 1},
		criproxy.Refused: {codes.Unknown, 0}, criproxy.DoneRefused: {codes.Unknown, 1},
		criproxy.Dropped: {codes.Unavailable, 0}, criproxy.DoneDropped: {codes.Unavailable, 1},
	} {
		before := made()
		met := make(chan struct{})
		var once sync.Once
		p.Disturb(func(string) criproxy.Fault {
			once.Do(func() { close(met) })
			return fault
		})
		if fault == criproxy.Mute || fault == criproxy.DoneMute {
			go func() { <-met; p.Mend() }()
		}
		_, err := c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Uid: "of " + string(fault)}}}, grpc.WaitForReady(true))
		p.Mend()
		if status.Code(err) != want.code || made() != before+want.made {
			t.Errorf("%q: %v, %d were made, want %v and %d", fault, err, made()-before, want.code, want.made)
		}
	}
	list := func() int {
		got, err := c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return len(got.GetItems())
	}
	before := list()
	p.Disturb(func(string) criproxy.Fault { return criproxy.Stale })
	if _, err := c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "more", Uid: "more"}}}); err != nil {
		t.Fatal(err)
	}
	if got := list(); got != before {
		t.Errorf("a stale list has %d, had %d before", got, before)
	}
	p.Mend()
	if got := list(); got != before+1 {
		t.Errorf("the list has %d, want %d", got, before+1)
	}
	if n := len(p.Count()); n != 9 {
		t.Errorf("%d kinds of faults were counted: %v", n, p.Count())
	}
}
