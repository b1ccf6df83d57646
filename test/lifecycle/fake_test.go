package lifecycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	k8s "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/inproc"
	"monoplane.dev/codec"
	"monoplane.dev/nodeagent/runtime/fake"
	"monoplane.dev/test/lifecycle"
)

// namespace is where the pods of the scenarios are.
const namespace = "default"

// TestFake plays all scenarios in virtual time.
func TestFake(t *testing.T) {
	all, err := lifecycle.All("fake")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { play(t, s) })
		})
	}
}

func play(t *testing.T, s *lifecycle.Scenario) {
	// A scenario takes minutes of virtual time at most; one that waits for what never comes ends here.
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	seen := &lifecycle.History{}
	c, err := monoplane.Start(t.Context(), monoplane.Config{
		DataDir: t.TempDir(), NodeName: "node", Runtime: &acting{scenario: s, seen: seen},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	d := &driver{client: c.Client(), name: s.Name}
	if err := d.create(ctx, s.Simulated(), seen); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx, d, seen); err != nil {
		t.Error(err)
	}
}

// driver reaches one pod of a cluster in this process.
type driver struct {
	client *client.Client
	name   string
}

// create creates the pod, and shows its history from the first version on.
func (d *driver) create(ctx context.Context, manifest *k8s.Pod, seen *lifecycle.History) error {
	manifest.Name = d.name
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	p := &corev1.Pod{}
	if _, err := codec.DecodeObject(text, p); err != nil {
		return err
	}
	w, err := d.client.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: namespace,
		FieldSelector: "metadata.name=" + d.name})
	if err != nil {
		return err
	}
	if _, err := w.Header(); err != nil { // the watch begins with the state as it is when it is accepted
		return err
	}
	go follow(w, seen)
	_, err = d.client.Pods.Create(ctx, &corev1.CreatePodRequest{Namespace: namespace, Object: p})
	return err
}

// follow shows what a watch brings until it ends.
func follow(w grpc.ServerStreamingClient[corev1.PodEvents], seen *lifecycle.History) {
	for {
		batch, err := w.Recv()
		if err != nil {
			return
		}
		for _, e := range batch.GetEvents() {
			p := &k8s.Pod{}
			if err := json.Unmarshal(e.GetObject().AppendJSON(nil), p); err != nil {
				panic(err) // the codec is compared with Kubernetes' elsewhere
			}
			seen.Saw(p)
			if e.GetType() == "DELETED" {
				seen.Saw(nil)
			}
		}
	}
}

// Delete implements lifecycle.Driver.
func (d *driver) Delete(ctx context.Context, graceSeconds *int64) error {
	_, err := d.client.Pods.Delete(ctx, &metav1.DeleteRequest{Namespace: namespace, Name: d.name,
		GracePeriodSeconds: graceSeconds})
	return err
}

// Events implements lifecycle.Driver.
func (d *driver) Events(ctx context.Context) ([]string, error) {
	list, err := d.client.Events.List(ctx, &metav1.ListRequest{Namespace: namespace})
	var out []string
	for _, e := range list.GetItems() {
		out = append(out, e.GetReason())
	}
	return out, err
}

// PatchStatus implements lifecycle.Driver.
func (d *driver) PatchStatus(ctx context.Context, patch []byte) error {
	_, err := d.client.Pods.PatchStatus(ctx, &metav1.PatchRequest{Namespace: namespace, Name: d.name, Patch: patch,
		PatchType: "application/strategic-merge-patch+json"})
	return err
}

// acting is the runtime `fake`, in which probes and hooks do what program act would.
type acting struct {
	*fake.Runtime

	scenario *lifecycle.Scenario
	seen     *lifecycle.History

	mu      sync.Mutex
	names   map[string]string    // of containers, by id
	shown   map[string][]string  // the marks of variables, by name of the container
	stops   map[string]string    // the mark of the signal that stops it, likewise
	started map[string]time.Time // by id
	termed  map[string]bool      // by name of the container that runs
	killed  map[string]bool
}

// Open implements monoplane.Runtime.
func (a *acting) Open(context.Context, string, string, *slog.Logger) (grpc.ClientConnInterface, func() error, error) {
	a.names, a.started, a.shown = make(map[string]string), make(map[string]time.Time), make(map[string][]string)
	a.termed, a.killed, a.stops = make(map[string]bool), make(map[string]bool), make(map[string]string)
	a.Runtime = fake.New(fake.Config{Journal: a.note})
	s := inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(s, a)
	runtimeapi.RegisterImageServiceServer(s, a)
	return s.Conn(inproc.Detached()), func() error { s.Stop(); return nil }, nil
}

// Simulated implements monoplane.Runtime.
func (a *acting) Simulated() bool { return true }

// note turns the runtime's journal into marks. A process that was killed leaves none.
func (a *acting) note(e fake.Entry) {
	a.mu.Lock()
	var what []string
	switch e.What {
	case "START":
		a.termed[e.Container], a.killed[e.Container] = false, false
		what = append(what, e.What)
		what = append(what, a.shown[e.Container]...)
	case "TERM":
		a.termed[e.Container] = true
		what = append(what, a.stops[e.Container])
	case "KILL":
		a.killed[e.Container] = true
	case "EXIT":
		if !a.killed[e.Container] {
			what = append(what, fmt.Sprintf("END(%d)", a.scenario.Code(e.Container, a.termed[e.Container])))
		}
	}
	a.mu.Unlock()
	for _, w := range what {
		a.seen.Marked(lifecycle.Mark{Time: e.Time, Container: e.Container, What: w})
	}
}

// CreateContainer implements runtimeapi.RuntimeServiceServer.
func (a *acting) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	out, err := a.Runtime.CreateContainer(ctx, req)
	a.mu.Lock()
	defer a.mu.Unlock()
	name := req.GetConfig().GetMetadata().GetName()
	a.names[out.GetContainerId()], a.shown[name] = name, nil
	a.stops[name] = "TERM"
	if signal := req.GetConfig().GetStopSignal(); signal != runtimeapi.Signal_RUNTIME_DEFAULT {
		a.stops[name] = strings.TrimPrefix(signal.String(), "SIG")
	}
	for _, variable := range a.scenario.Variables(name) {
		for _, e := range req.GetConfig().GetEnvs() {
			if e.GetKey() == variable {
				a.shown[name] = append(a.shown[name], variable+"="+string(e.GetValue()))
			}
		}
	}
	return out, err
}

// StartContainer implements runtimeapi.RuntimeServiceServer.
func (a *acting) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	a.mu.Lock()
	a.started[req.GetContainerId()] = time.Now()
	a.mu.Unlock()
	return a.Runtime.StartContainer(ctx, req)
}

// ExecSync implements runtimeapi.RuntimeServiceServer: it does what program act does as a probe or hook.
func (a *acting) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	a.mu.Lock()
	name, age := a.names[req.GetContainerId()], time.Since(a.started[req.GetContainerId()])
	a.mu.Unlock()
	if strings.Join(req.GetCmd(), " ") == lifecycle.Program+" check" {
		if a.scenario.Healthy(name, age) {
			return &runtimeapi.ExecSyncResponse{}, nil
		}
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("not healthy\n"), ExitCode: 1}, nil
	}
	mark := func(what string) {
		a.seen.Marked(lifecycle.Mark{Time: time.Now(), Container: name, What: what})
	}
	what, run, code, err := lifecycle.Hook(req.GetCmd())
	if err != nil {
		return nil, err
	}
	mark(what)
	limit := time.Duration(req.GetTimeout()) * time.Second
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	select {
	case <-time.After(run):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	mark(what + "-END")
	return &runtimeapi.ExecSyncResponse{ExitCode: code}, nil
}
