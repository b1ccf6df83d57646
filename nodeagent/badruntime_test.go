package nodeagent_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/runtime/fake"
)

var liarSeed = flag.Uint64("liarseed", 0, "the seed of what the runtime says that is not so; random when 0")

// liar is a runtime whose answers make no sense at times. What it does stays what it was asked for.
type liar struct {
	*fake.Runtime

	mu     sync.Mutex
	random *rand.Rand
	// lies is how many of a hundred answers are lies; only, if not empty, the one lie that is told.
	lies int
	only string
	told map[string]int
}

// makeLiar puts a liar in the place of the world's runtime.
func makeLiar(w *world, seed uint64) *liar {
	w.cri.Stop()
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	l := &liar{Runtime: w.rt, random: random, told: make(map[string]int)}
	w.cri = inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(w.cri, l)
	runtimeapi.RegisterImageServiceServer(w.cri, l)
	conn := w.cri.Conn()
	w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return l
}

func (l *liar) tell(lies int, only string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies, l.only = lies, only
}

// lie chooses one of several lies; empty for the truth.
func (l *liar) lie(which ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.random.IntN(100) >= l.lies {
		return ""
	}
	chosen := which[l.random.IntN(len(which))]
	if l.only != "" {
		if chosen = l.only; !slices.Contains(which, chosen) {
			return ""
		}
	}
	l.told[chosen]++
	return chosen
}

// refuses tells the lies that any call may answer with.
func (l *liar) refuses(ctx context.Context, what string) error {
	switch what {
	case "hangs", "lists hang":
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case "fails":
		return status.Error(codes.Unknown, strings.Repeat("it does not work ", 1_000))
	default:
		return nil
	}
}

func (l *liar) Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	if l.lie("no version") != "" {
		return &runtimeapi.VersionResponse{}, nil
	}
	return l.Runtime.Version(ctx, req)
}

func (l *liar) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	switch what := l.lie("no conditions", "hangs"); what {
	case "no conditions":
		return &runtimeapi.StatusResponse{}, nil
	default:
		if err := l.refuses(ctx, what); err != nil {
			return nil, err
		}
		return l.Runtime.Status(ctx, req)
	}
}

func (l *liar) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	got, err := l.Runtime.RunPodSandbox(ctx, req)
	switch l.lie("no id", "another's id") {
	case "no id":
		return &runtimeapi.RunPodSandboxResponse{}, err
	case "another's id":
		all, _ := l.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		return &runtimeapi.RunPodSandboxResponse{PodSandboxId: all.GetItems()[0].GetId()}, err
	default:
		return got, err
	}
}

func (l *liar) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	got, err := l.Runtime.CreateContainer(ctx, req)
	switch l.lie("no id", "another's id") {
	case "no id":
		return &runtimeapi.CreateContainerResponse{}, err
	case "another's id":
		all, _ := l.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if len(all.GetContainers()) == 0 {
			return got, err
		}
		return &runtimeapi.CreateContainerResponse{ContainerId: all.GetContainers()[0].GetId()}, err
	default:
		return got, err
	}
}

func (l *liar) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	switch what := l.lie("hangs", "fails", "nothing done", "done and refused"); what {
	case "nothing done":
		return &runtimeapi.StartContainerResponse{}, nil
	case "done and refused":
		_, _ = l.Runtime.StartContainer(ctx, req)
		return nil, status.Error(codes.Unknown, "it was not started")
	default:
		if err := l.refuses(ctx, what); err != nil {
			return nil, err
		}
		return l.Runtime.StartContainer(ctx, req)
	}
}

func (l *liar) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	what := l.lie("hangs", "fails", "nothing done")
	if what == "nothing done" {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err := l.refuses(ctx, what); err != nil {
		return nil, err
	}
	return l.Runtime.StopContainer(ctx, req)
}

func (l *liar) ListContainers(
	ctx context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	got, err := l.Runtime.ListContainers(ctx, req)
	what := l.lie("hangs", "lists hang", "fails", "nothing", "twice", "no id", "everything", "unknown", "wrong uid",
		"back", "wrong name")
	if refused := l.refuses(ctx, what); refused != nil || err != nil {
		return nil, errors.Join(refused, err)
	}
	all := got.GetContainers()
	if len(all) == 0 {
		return got, nil
	}
	changed := proto.CloneOf(all[0])
	switch what {
	case "nothing":
		return &runtimeapi.ListContainersResponse{}, nil
	case "twice":
		changed.State = runtimeapi.ContainerState_CONTAINER_EXITED
		return &runtimeapi.ListContainersResponse{Containers: append(all, changed)}, nil
	case "no id":
		changed.Id = ""
		return &runtimeapi.ListContainersResponse{Containers: append(all, changed)}, nil
	case "everything": // whatever was asked for
		return l.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	case "unknown":
		changed.Id = "unknown"
		return &runtimeapi.ListContainersResponse{Containers: append(all, changed)}, nil
	case "wrong uid":
		changed.Labels[criconfig.LabelPodUID] = "00000000-0000-4000-8000-000000000000"
		changed.Id = "wrong"
		return &runtimeapi.ListContainersResponse{Containers: append(all, changed)}, nil
	case "back":
		changed.State = runtimeapi.ContainerState_CONTAINER_CREATED
		return &runtimeapi.ListContainersResponse{Containers: append(all[1:], changed)}, nil
	case "wrong name":
		changed.Metadata.Name, changed.Metadata.Attempt = "other", 7
		return &runtimeapi.ListContainersResponse{Containers: append(all[1:], changed)}, nil
	default:
		return got, nil
	}
}

func (l *liar) ListPodSandbox(
	ctx context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	got, err := l.Runtime.ListPodSandbox(ctx, req)
	what := l.lie("hangs", "fails", "nothing", "twice", "unknown")
	if refused := l.refuses(ctx, what); refused != nil || err != nil {
		return nil, errors.Join(refused, err)
	}
	all := got.GetItems()
	if len(all) == 0 {
		return got, nil
	}
	changed := proto.CloneOf(all[0])
	switch what {
	case "nothing":
		return &runtimeapi.ListPodSandboxResponse{}, nil
	case "twice":
		return &runtimeapi.ListPodSandboxResponse{Items: append(all, changed)}, nil
	case "unknown":
		changed.Id = "unknown"
		changed.Metadata.Attempt += 7
		return &runtimeapi.ListPodSandboxResponse{Items: append(all, changed)}, nil
	default:
		return got, nil
	}
}

func (l *liar) PodSandboxStatus(
	ctx context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	got, err := l.Runtime.PodSandboxStatus(ctx, req)
	what := l.lie("hangs", "fails", "empty", "wrong uid")
	if refused := l.refuses(ctx, what); refused != nil || err != nil {
		return nil, cmp.Or(refused, err)
	}
	switch what {
	case "empty":
		return &runtimeapi.PodSandboxStatusResponse{}, nil
	case "wrong uid":
		got = proto.CloneOf(got)
		got.Status.Metadata.Uid = "another"
	}
	return got, nil
}

func (l *liar) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	got, err := l.Runtime.ContainerStatus(ctx, req)
	what := l.lie("hangs", "fails", "empty", "another", "negative", "future", "long", "back")
	if refused := l.refuses(ctx, what); refused != nil || err != nil {
		return nil, cmp.Or(refused, err)
	}
	got = proto.CloneOf(got)
	s := got.GetStatus()
	switch what {
	case "empty":
		return &runtimeapi.ContainerStatusResponse{}, nil
	case "another":
		s.Id = "another"
	case "negative":
		s.CreatedAt, s.StartedAt, s.FinishedAt = -1, math.MinInt64, -5
	case "future":
		s.StartedAt, s.FinishedAt = math.MaxInt64, math.MaxInt64
	case "long":
		s.Message, s.Reason = strings.Repeat("\xff", 1<<20), strings.Repeat("R", 1<<20)
	case "back":
		s.State = runtimeapi.ContainerState_CONTAINER_CREATED
	}
	return got, nil
}

// overlaps says which containers of the world ran twice at a time.
func (w *world) overlaps() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := make(map[string]int)
	var out []string
	for _, e := range w.journal {
		key := e.UID + "/" + e.Container
		switch e.What {
		case "START":
			if running[key]++; running[key] > 1 {
				out = append(out, fmt.Sprintf("%s/%s attempt %d beside another @%s", e.Pod, e.Container, e.Attempt,
					e.Time.Sub(w.began)))
			}
		case "EXIT":
			running[key]--
		}
	}
	return out
}

// A runtime answers nonsense, hangs and fails at random: no container runs twice, the agent goes on, and once the
// runtime has come to its senses every pod runs, what was deleted is gone, and the node is ready.
// spec: SAFE-1, NODE-1
func TestBadRuntimeTalksNonsense(t *testing.T) {
	seed := *liarSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	t.Logf("seed %d", seed)
	for i := range uint64(4) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				l := makeLiar(w, seed+i)
				w.start()
				l.tell(20, "")
				w.create("a", containers("x", "y"))
				w.create("b", annotated("exit-after", "40s"))
				w.create("c", grace(3))
				w.create("d", restart("OnFailure"), annotated("exit-after", "100s"))
				time.Sleep(5 * time.Minute)
				w.delete("c", -1)
				w.create("e")
				time.Sleep(5 * time.Minute)
				w.kill() // the next agent is lied to from the beginning
				w.begin()
				time.Sleep(5 * time.Minute)
				l.tell(0, "")
				time.Sleep(20 * time.Minute)
				if got := w.overlaps(); len(got) > 0 {
					t.Errorf("what ran twice: %v", got)
				}
				w.phase("a", "Running")
				w.phase("b", "Running")
				w.phase("d", "Succeeded")
				w.phase("e", "Running")
				if p := w.get("c"); p != nil {
					t.Errorf("c is still there: %v", p.GetStatus())
				}
				for _, name := range []string{"a", "e"} {
					if c := cond(w.get(name), "Ready"); c.GetStatus() != "True" {
						t.Errorf("%s is not ready: %v", name, w.get(name).GetStatus())
					}
				}
				if c := w.nodeCond("Ready"); c.GetStatus() != "True" {
					t.Errorf("the node says %v", c)
				}
				if t.Failed() {
					for _, name := range []string{"a", "b", "c", "d", "e"} {
						t.Log(name, w.signals(name))
					}
				}
				t.Log(l.told)
			})
		})
	}
}

// Once a runtime hangs as a whole, or only when it is asked what runs, the node says so; what runs goes on, and the
// node is ready again by itself. spec: NODE-1
func TestBadRuntimeHangs(t *testing.T) {
	for _, c := range []struct {
		lie, message string
		after        time.Duration
	}{
		{"hangs", "the container runtime does not answer: ", 15 * time.Second},
		{"no conditions", "the container runtime does not answer: the container runtime's answer makes no sense: ",
			15 * time.Second},
		{"lists hang", "PLEG is not healthy: pleg was last seen active ", 5 * time.Minute},
	} {
		t.Run(c.lie, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := makeLiar(w, 1)
				w.start()
				w.create("a")
				time.Sleep(time.Minute)
				l.tell(100, c.lie)
				time.Sleep(c.after)
				if r := w.nodeCond("Ready"); r.GetStatus() != "False" || r.GetReason() != "KubeletNotReady" ||
					!strings.HasPrefix(r.GetMessage(), c.message) {
					t.Errorf("the node says %v", r)
				}
				time.Sleep(20 * time.Minute)
				l.tell(0, "")
				w.create("b")
				time.Sleep(2 * time.Minute)
				if r := w.nodeCond("Ready"); r.GetStatus() != "True" {
					t.Errorf("the node says %v", r)
				}
				w.expect("a", "START main/0 @0s")
				w.phase("b", "Running")
			})
		})
	}
}

// socket is where runtimes listen, one after the other.
type socket struct {
	mu   sync.Mutex
	conn grpc.ClientConnInterface // nil while none does
}

func (s *socket) now() (grpc.ClientConnInterface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil, status.Error(codes.Unavailable, "connection refused")
	}
	return s.conn, nil
}

func (s *socket) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, err := s.now()
	if err != nil {
		return err
	}
	return conn.Invoke(ctx, method, args, reply, opts...)
}

func (s *socket) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	conn, err := s.now()
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, desc, method, opts...)
}

// listen lets a runtime listen, or none when it is nil.
func (s *socket) listen(w *world, r criServer) {
	w.cri.Stop()
	var conn grpc.ClientConnInterface
	if r != nil {
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, r)
		runtimeapi.RegisterImageServiceServer(w.cri, r)
		conn = w.cri.Conn()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
}

type criServer interface {
	runtimeapi.RuntimeServiceServer
	runtimeapi.ImageServiceServer
}

// renamed is a runtime with other ids for what ran before it came.
type renamed struct{ *fake.Runtime }

const newName = "new-"

func (r renamed) ListContainers(
	ctx context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	got, err := r.Runtime.ListContainers(ctx, req)
	for _, c := range got.GetContainers() {
		c.Id, c.PodSandboxId = newName+c.Id, newName+c.PodSandboxId
	}
	return got, err
}

func (r renamed) ListPodSandbox(
	ctx context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	got, err := r.Runtime.ListPodSandbox(ctx, req)
	for _, s := range got.GetItems() {
		s.Id = newName + s.Id
	}
	return got, err
}

// old returns the id that the runtime knows; there is none for what is not called by its new name.
func old(id string) string {
	name, ok := strings.CutPrefix(id, newName)
	if !ok {
		return "none"
	}
	return name
}

func (r renamed) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	got, err := r.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: old(req.GetContainerId())})
	if err == nil {
		got.Status.Id = req.GetContainerId()
	}
	return got, err
}

func (r renamed) PodSandboxStatus(
	ctx context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	got, err := r.Runtime.PodSandboxStatus(ctx,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: old(req.GetPodSandboxId())})
	if err == nil {
		got.Status.Id = req.GetPodSandboxId()
	}
	return got, err
}

func (r renamed) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	got, err := r.Runtime.RunPodSandbox(ctx, req)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: newName + got.GetPodSandboxId()}, err
}

func (r renamed) StopPodSandbox(
	ctx context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	return r.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: old(req.GetPodSandboxId())})
}

func (r renamed) RemovePodSandbox(
	ctx context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	return r.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: old(req.GetPodSandboxId())})
}

func (r renamed) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	req = proto.CloneOf(req)
	req.PodSandboxId = old(req.GetPodSandboxId())
	got, err := r.Runtime.CreateContainer(ctx, req)
	return &runtimeapi.CreateContainerResponse{ContainerId: newName + got.GetContainerId()}, err
}

func (r renamed) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	return r.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: old(req.GetContainerId())})
}

func (r renamed) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	return r.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: old(req.GetContainerId()),
		Timeout: req.GetTimeout()})
}

func (r renamed) RemoveContainer(
	ctx context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	return r.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: old(req.GetContainerId())})
}

func (r renamed) GetContainerEvents(
	*runtimeapi.GetEventsRequest, runtimeapi.RuntimeService_GetContainerEventsServer,
) error {
	return status.Error(codes.Unimplemented, "no events")
}

// forgetful is a runtime that does not know the state of what ran before it came, until it was told to stop it.
type forgetful struct {
	*fake.Runtime

	since time.Time
}

func (f forgetful) ListContainers(
	ctx context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	got, err := f.Runtime.ListContainers(ctx, req)
	if err != nil {
		return nil, err
	}
	got = proto.CloneOf(got)
	for _, c := range got.GetContainers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetCreatedAt() < f.since.UnixNano() {
			c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		}
	}
	return got, nil
}

func (f forgetful) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	got, err := f.Runtime.ContainerStatus(ctx, req)
	if err != nil {
		return nil, err
	}
	got = proto.CloneOf(got)
	if s := got.GetStatus(); s.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING &&
		s.GetCreatedAt() < f.since.UnixNano() {
		s.State, s.StartedAt = runtimeapi.ContainerState_CONTAINER_UNKNOWN, 0
	}
	return got, nil
}

// A runtime dies under the agent and comes back: as it was, without anything, with other ids for what it runs, or
// without knowing whether it runs. Nothing runs twice, nothing is lost, and the node says so as long as there is none.
// spec: NODE-1, SAFE-1
func TestBadRuntimeDiesAndIsReplaced(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  func(w *world) criServer
		starts int // of the first pod, in the runtime that was there first
		last   string
	}{
		{"as it was", func(w *world) criServer { return w.rt }, 1, ""},
		{"empty", func(*world) criServer { return fake.New(fake.Config{}) }, 1, "ContainerStatusUnknown"},
		{"with other ids", func(w *world) criServer { return renamed{w.rt} }, 2, "ContainerStatusUnknown"},
		{"without knowledge of their state", func(w *world) criServer { return forgetful{w.rt, time.Now()} }, 2, "Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := &socket{}
				s.listen(w, w.rt)
				w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(s), runtimeapi.NewImageServiceClient(s)
				w.start()
				w.create("a")
				time.Sleep(time.Minute)
				s.listen(w, nil)
				time.Sleep(15 * time.Second)
				if r := w.nodeCond("Ready"); r.GetStatus() != "False" || r.GetReason() != "KubeletNotReady" {
					t.Errorf("the node says %v", r)
				}
				w.create("b")
				time.Sleep(10 * time.Minute)
				s.listen(w, c.after(w))
				time.Sleep(2 * time.Minute)
				if r := w.nodeCond("Ready"); r.GetStatus() != "True" {
					t.Errorf("the node says %v", r)
				}
				w.phase("b", "Running")
				a := w.phase("a", "Running").GetStatus().GetContainerStatuses()[0]
				if a.GetState().GetRunning() == nil || !a.GetReady() ||
					a.GetLastState().GetTerminated().GetReason() != c.last {
					t.Errorf("a: %v", a)
				}
				if got := w.starts("a"); len(got) != c.starts || len(w.overlaps()) > 0 {
					t.Errorf("a: %v, %v", w.signals("a"), w.overlaps())
				}
			})
		})
	}
}

// However long the runtime was away, the agent has everything in hand again within half a second of its coming back:
// what runs is adopted as it is, what ended meanwhile is told, what was asked for meanwhile begins. The same goes for
// an agent that began while it was away. spec: NODE-1, NODE-2, SAFE-1
func TestRuntimeIsBackWithinASecond(t *testing.T) {
	const within = 500 * time.Millisecond // and package connect needs 300 ms to connect again
	for _, away := range []time.Duration{2 * time.Minute, time.Hour} {
		for _, begins := range []bool{false, true} {
			t.Run(fmt.Sprintf("away for %s, agent begins meanwhile %t", away, begins), func(t *testing.T) {
				inWorld(t, func(w *world) {
					log := w.logged(slog.LevelWarn)
					s := &socket{}
					s.listen(w, w.rt)
					w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(s), runtimeapi.NewImageServiceClient(s)
					w.start()
					w.create("runs")
					w.create("ends", restart("Never"), annotated("exit-after", "80s"))
					w.create("leaves", grace(3))
					time.Sleep(time.Minute)
					s.listen(w, nil)
					w.create("comes")
					w.delete("leaves", -1)
					time.Sleep(time.Minute)
					if begins {
						w.kill()
						w.begin()
					}
					time.Sleep(away - time.Minute)
					back := time.Now()
					s.listen(w, w.rt)
					time.Sleep(within)
					if r := w.nodeCond("Ready"); r.GetStatus() != "True" {
						t.Errorf("the node says %v", r)
					}
					w.phase("ends", "Succeeded")
					if got := w.starts("runs"); len(got) != 1 {
						t.Errorf("runs: %v", w.signals("runs"))
					}
					for pod, what := range map[string]string{"comes": "START", "leaves": "TERM"} {
						if got := w.signals(pod); !slices.ContainsFunc(got, func(s string) bool {
							return strings.HasPrefix(s, what+" ")
						}) {
							t.Errorf("%s: %v, want %s within %s of %s", pod, got, what, within, back.Sub(w.began))
						}
					}
					time.Sleep(time.Minute)
					if p := w.get("leaves"); p != nil || len(w.overlaps()) > 0 {
						t.Errorf("it is still there: %v; ran twice: %v", p.GetStatus(), w.overlaps())
					}
					w.phase("comes", "Running")
					if n := strings.Count(log.String(), "container runtime"); n > 10+3*int(away/troubleEvery) {
						t.Errorf("the log speaks of the runtime %d times:\n%s", n, log)
					}
				})
			})
		}
	}
}

// troubleEvery is how often the log says what goes on failing.
const troubleEvery = time.Minute
