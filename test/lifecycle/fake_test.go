package lifecycle_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	k8s "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
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
			s, err := s.Filled(lifecycle.Placeholders{Served: 1})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { play(t, s, nil) })
		})
	}
}

// TestFakeBad plays the scenarios of bad input, each beside a neighbour that goes on.
func TestFakeBad(t *testing.T) {
	all, err := lifecycle.Bad("fake")
	if err != nil {
		t.Fatal(err)
	}
	places := lifecycle.Placeholders{Place: "/place", Seen: "/place", Registry: registry, Private: private,
		Closed: 1, Endless: 2}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s, err := s.Filled(places)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { play(t, s, s.Neighbour()) })
		})
	}
}

// play plays a scenario, beside a neighbour if there is one.
func play(t *testing.T, s, neighbour *lifecycle.Scenario) {
	// A scenario takes minutes of virtual time at most; one that waits for what never comes ends here.
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	seen, beside := &lifecycle.History{}, &lifecycle.History{}
	runtime := &acting{scenario: s, seen: []*lifecycle.History{seen, beside}}
	c, err := monoplane.Start(t.Context(), monoplane.Config{
		DataDir: t.TempDir(), NodeName: "node", Runtime: runtime,
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
	goesOn := func() {}
	if neighbour != nil {
		d := &driver{client: c.Client(), name: neighbour.Name, runtime: runtime}
		if err := d.create(ctx, neighbour.Simulated(), beside); err != nil {
			t.Fatal(err)
		}
		goesOn = func() {
			if err := neighbour.Run(ctx, d, beside); err != nil {
				t.Error(err)
			}
		}
	}
	goesOn()
	d := &driver{client: c.Client(), name: s.Name, runtime: runtime}
	if err := d.create(ctx, s.Simulated(), seen); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx, d, seen); err != nil {
		t.Error(err)
	}
	goesOn()
}

// driver reaches one pod of a cluster in this process.
type driver struct {
	client  *client.Client
	name    string
	runtime *acting
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
	_, err = d.client.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: namespace, Object: p})
	return err
}

// follow shows what a watch brings until it ends.
func follow(w grpc.ServerStreamingClient[corev1rpc.PodEvents], seen *lifecycle.History) {
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

// Patch implements lifecycle.Driver.
func (d *driver) Patch(ctx context.Context, subresource string, patch []byte) error {
	write := d.client.Pods.PatchStatus
	switch subresource {
	case "":
		write = d.client.Pods.Patch
	case "resize":
		write = d.client.Pods.PatchResize
	case "ephemeralcontainers":
		write = d.client.Pods.PatchEphemeralContainers
	}
	_, err := write(ctx, &metav1.PatchRequest{Namespace: namespace, Name: d.name, Patch: patch,
		PatchType: "application/strategic-merge-patch+json"})
	return err
}

// Events implements lifecycle.Driver.
func (d *driver) Events(ctx context.Context) ([]string, error) {
	list, err := d.client.Events.List(ctx, &metav1.ListRequest{Namespace: namespace})
	var out []string
	for _, e := range list.GetItems() {
		if e.GetInvolvedObject().GetName() == d.name {
			out = append(out, e.GetReason()+" "+e.GetMessage())
		}
	}
	return out, err
}

// Config implements lifecycle.Surroundings.
func (d *driver) Config(ctx context.Context, name string, data map[string]string) error {
	made := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
	_, err := d.client.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Namespace: namespace, Object: made})
	if apierrors.Is(err, apierrors.AlreadyExists) {
		_, err = d.client.ConfigMaps.Update(ctx, &corev1rpc.UpdateConfigMapRequest{Namespace: namespace, Name: name,
			Object: made})
	}
	return err
}

// Image implements lifecycle.Surroundings.
func (d *driver) Image(ctx context.Context, container, image string) error {
	for {
		p, err := d.client.Pods.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: d.name})
		if err != nil {
			return err
		}
		p = p.Clone()
		for _, c := range slices.Concat(p.GetSpec().GetInitContainers(), p.GetSpec().GetContainers()) {
			if c.GetName() == container {
				c.Image = cmp.Or(image, "act")
			}
		}
		_, err = d.client.Pods.Update(ctx, &corev1rpc.UpdatePodRequest{Namespace: namespace, Name: d.name, Object: p})
		if !apierrors.Is(err, apierrors.Conflict) {
			return err
		}
	}
}

// Now implements lifecycle.Surroundings.
func (d *driver) Now(ctx context.Context, what string) error {
	if password, about := strings.CutPrefix(what, "the password is "); about {
		s := &corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: "pull"},
			Type: "kubernetes.io/dockerconfigjson", Data: map[string][]byte{".dockerconfigjson": fmt.Appendf(nil,
				`{"auths":{%q:{"username":"user","password":%q}}}`, private, password)}}
		_, err := d.client.Secrets.Create(ctx, &corev1rpc.CreateSecretRequest{Namespace: namespace, Object: s})
		if apierrors.Is(err, apierrors.AlreadyExists) {
			_, err = d.client.Secrets.Update(ctx, &corev1rpc.UpdateSecretRequest{Namespace: namespace, Name: "pull", Object: s})
		}
		return err
	}
	if what == "the sandbox is lost" {
		return d.runtime.lose(ctx, d.name)
	}
	d.runtime.change(what)
	return nil
}

// acting is the runtime `fake`, in which probes and hooks do what program act would.
type acting struct {
	*fake.Runtime

	scenario *lifecycle.Scenario
	seen     []*lifecycle.History

	mu      sync.Mutex
	changes map[string]bool      // what has been said to be so now
	pulled  map[string]bool      // images of registries
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
	a.changes, a.pulled = make(map[string]bool), make(map[string]bool)
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
		a.mark(lifecycle.Mark{Time: e.Time, Container: e.Container, What: w})
	}
}

func (a *acting) mark(m lifecycle.Mark) {
	for _, h := range a.seen {
		h.Marked(m)
	}
}

func (a *acting) change(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes[what] = true
}

// lose stops the sandboxes of a pod, as a machine does that comes back without them.
func (a *acting) lose(ctx context.Context, pod string) error {
	list, err := a.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, s := range list.GetItems() {
		if s.GetMetadata().GetName() != pod {
			continue
		}
		if _, err := a.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			return err
		}
	}
	return nil
}

func (a *acting) is(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changes[what]
}

// The hosts of registries.
const (
	registry = "registry.example"
	private  = "private.example"
)

// ImageStatus implements runtimeapi.ImageServiceServer: images of registries must be pulled first.
func (a *acting) ImageStatus(
	ctx context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	name := req.GetImage().GetImage()
	a.mu.Lock()
	absent := (strings.HasPrefix(name, registry) || strings.HasPrefix(name, private)) && !a.pulled[name]
	a.mu.Unlock()
	if absent {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return a.Runtime.ImageStatus(ctx, req)
}

// PullImage implements runtimeapi.ImageServiceServer.
func (a *acting) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	switch {
	case strings.HasPrefix(name, registry) && !a.is("the registry answers"):
		return nil, status.Error(codes.Unknown, "failed to do request: dial tcp 127.0.0.1:1: connect: connection refused")
	case strings.HasPrefix(name, private) && req.GetAuth().GetPassword() != "right":
		return nil, status.Error(codes.Unknown, "unexpected status: 401 Unauthorized")
	}
	a.mu.Lock()
	a.pulled[name] = true
	a.mu.Unlock()
	return a.Runtime.PullImage(ctx, req)
}

// CreateContainer implements runtimeapi.RuntimeServiceServer.
func (a *acting) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	if req.GetConfig().GetImage().GetImage() == "localhost/nobody:1" {
		return nil, status.Error(codes.Unknown, "open /etc/passwd: no such file or directory")
	}
	out, err := a.Runtime.CreateContainer(ctx, req)
	a.mu.Lock()
	defer a.mu.Unlock()
	name := req.GetConfig().GetMetadata().GetName()
	a.names[out.GetContainerId()], a.shown[name] = name, nil
	a.stops[name] = "TERM"
	if signal := req.GetConfig().GetStopSignal(); signal != runtimeapi.Signal_RUNTIME_DEFAULT {
		a.stops[name] = strings.TrimPrefix(signal.String(), "SIG")
	}
	if a.scenario.ShowsUsers(name) {
		a.shown[name] = append(a.shown[name], fmt.Sprint("USERS=", usersOf(req.GetConfig())))
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

// usersOf returns how many users a container has, as its process would find it.
func usersOf(config *runtimeapi.ContainerConfig) uint32 {
	own := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if own == nil || own.GetMode() != runtimeapi.NamespaceMode_POD {
		return math.MaxUint32
	}
	var n uint32
	for _, m := range own.GetUids() {
		n += m.GetLength()
	}
	return n
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
	what := strings.Join(req.GetCmd(), " ")
	if has, listens := a.scenario.Serves(name, age); has && (what == "tcpSocket" || what == "httpGet" || what == "grpc") {
		if listens {
			return &runtimeapi.ExecSyncResponse{}, nil
		}
		what = "closed"
	}
	switch what {
	case "closed":
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("connect: connection refused"), ExitCode: 1}, nil
	case "tcpSocket":
		if a.is("the port is open") {
			return &runtimeapi.ExecSyncResponse{}, nil
		}
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("dial tcp 127.0.0.1:1: connect: connection refused"),
			ExitCode: 1}, nil
	case "httpGet":
		if a.is("the server comes to an end") {
			return &runtimeapi.ExecSyncResponse{}, nil
		}
		return nil, status.Error(codes.Unknown, "no end of the answer")
	case lifecycle.Program + " check":
		if a.scenario.Healthy(name, age) {
			return &runtimeapi.ExecSyncResponse{}, nil
		}
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("not healthy\n"), ExitCode: 1}, nil
	}
	mark := func(what string) { a.mark(lifecycle.Mark{Time: time.Now(), Container: name, What: what}) }
	hook, run, code, err := lifecycle.Hook(req.GetCmd())
	if err != nil {
		return nil, err
	}
	mark(hook)
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
	mark(hook + "-END")
	return &runtimeapi.ExecSyncResponse{ExitCode: code}, nil
}
