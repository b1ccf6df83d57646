package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/runtime/fake"
)

// sick is a runtime of which a part does not answer: calls about the pods whose names begin so hang
// until the caller's time is up.
type sick struct {
	*fake.Runtime

	mu sync.Mutex
	// starts, stops and looks name the pods for which StartContainer, the calls that stop, and the statuses hang.
	starts, stops, looks string
	// startsAfter is when a start that hangs is carried out all the same; negative for never.
	startsAfter time.Duration
}

func makeSick(w *world) *sick {
	w.cri.Stop()
	s := &sick{Runtime: w.rt, startsAfter: -1}
	w.cri = inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(w.cri, s)
	runtimeapi.RegisterImageServiceServer(w.cri, s)
	conn := w.cri.Conn()
	w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return s
}

func (s *sick) set(f func(s *sick)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// hang waits for the end of ctx if the pod of the container or sandbox is the one that which returns.
func (s *sick) hang(ctx context.Context, id string, which func() string) error {
	s.mu.Lock()
	pod := which()
	s.mu.Unlock()
	if pod == "" || !strings.HasPrefix(s.podOf(id), pod) {
		return nil
	}
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// podOf returns the name of the pod that a container or sandbox is of.
func (s *sick) podOf(id string) string {
	ctx := context.Background()
	if c, err := s.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}); err == nil {
		return c.GetStatus().GetLabels()[criconfig.LabelPodName]
	}
	box, err := s.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return ""
	}
	return box.GetStatus().GetMetadata().GetName()
}

func (s *sick) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	s.mu.Lock()
	hangs, after := s.starts != "" && s.podOf(req.GetContainerId()) == s.starts, s.startsAfter
	s.mu.Unlock()
	if !hangs {
		return s.Runtime.StartContainer(ctx, req)
	}
	if after >= 0 {
		time.AfterFunc(after, func() { _, _ = s.Runtime.StartContainer(context.Background(), req) })
	}
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (s *sick) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	if err := s.hang(ctx, req.GetContainerId(), func() string { return s.stops }); err != nil {
		return nil, err
	}
	return s.Runtime.StopContainer(ctx, req)
}

func (s *sick) StopPodSandbox(
	ctx context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	if err := s.hang(ctx, req.GetPodSandboxId(), func() string { return s.stops }); err != nil {
		return nil, err
	}
	return s.Runtime.StopPodSandbox(ctx, req)
}

func (s *sick) RemoveContainer(
	ctx context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	if err := s.hang(ctx, req.GetContainerId(), func() string { return s.stops }); err != nil {
		return nil, err
	}
	return s.Runtime.RemoveContainer(ctx, req)
}

func (s *sick) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	if err := s.hang(ctx, req.GetContainerId(), func() string { return s.looks }); err != nil {
		return nil, err
	}
	return s.Runtime.ContainerStatus(ctx, req)
}

func (s *sick) PodSandboxStatus(
	ctx context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := s.hang(ctx, req.GetPodSandboxId(), func() string { return s.looks }); err != nil {
		return nil, err
	}
	return s.Runtime.PodSandboxStatus(ctx, req)
}

func (w *world) nodeCond(kind string) *corev1.NodeCondition {
	w.t.Helper()
	for _, c := range w.node().GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

// starts returns when the pod's containers were started.
func (w *world) starts(pod string) []string {
	var out []string
	for _, s := range w.signals(pod) {
		if strings.HasPrefix(s, "START") {
			out = append(out, s)
		}
	}
	return out
}

// A start that is not answered may have happened, may happen yet, or never will. Nothing is started in its place until
// that is known; the pod says so meanwhile.
func TestStartIsNotAnswered(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
		want  string
	}{
		{"it happens at once", 0, "START main/0 @0s"},
		{"it happens after a minute", time.Minute, "START main/0 @1m0s"},
		{"it happens in its last second", 119 * time.Second, "START main/0 @1m59s"},
		{"it never happens", -1, "START main/0 @2m10s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := makeSick(w)
				s.set(func(s *sick) { s.starts, s.startsAfter = "a", c.after })
				w.start()
				w.create("a")
				w.create("b")
				w.settle()
				w.phase("b", "Running")
				s.set(func(s *sick) { s.starts = "" }) // the next one would be answered
				time.Sleep(5 * time.Minute)
				if got := strings.Join(w.starts("a"), ", "); got != c.want {
					t.Errorf("starts: %s, want %s", got, c.want)
				}
				if n := w.runs(); n != 2 {
					t.Errorf("%d containers run, want 2", n)
				}
				if c := w.phase("a", "Running").GetStatus().GetContainerStatuses()[0]; c.GetRestartCount() != 0 || !c.GetReady() {
					t.Errorf("status: %v", c)
				}
			})
		})
	}
}

// The runtime is gone for a moment while it starts a container, so that the call fails long before its deadline. What
// was not seen to run in time is removed, so that it never starts, however late the runtime comes to it.
func TestStartIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		s := makeSick(w)
		var lost bool
		w.cri.Stop()
		w.cri = inproc.NewServer(nil, nil)
		l := &losing{sick: s, lost: &lost}
		runtimeapi.RegisterRuntimeServiceServer(w.cri, l)
		runtimeapi.RegisterImageServiceServer(w.cri, l)
		conn := w.cri.Conn()
		w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
		w.start()
		w.create("a")
		time.Sleep(9 * time.Second)
		c := w.phase("a", "Pending").GetStatus().GetContainerStatuses()[0]
		if wait := c.GetState().GetWaiting(); wait.GetReason() != "StartUnconfirmed" ||
			!strings.Contains(wait.GetMessage(), "nothing is started in its place") {
			t.Errorf("the pod says %v", c)
		}
		time.Sleep(2 * time.Minute)
		w.expect("a", "START main/0 @10s")
		w.phase("a", "Running")
	})
}

// losing loses the answer to the first start, which is carried out after a minute and a half.
type losing struct {
	*sick
	lost *bool
}

func (l *losing) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	if *l.lost {
		return l.sick.StartContainer(ctx, req)
	}
	*l.lost = true
	time.AfterFunc(90*time.Second, func() { _, _ = l.sick.StartContainer(context.Background(), req) })
	return nil, status.Error(codes.Unavailable, "the connection was lost")
}

// A pod is deleted while its start is not answered: it does not wait for the end of the start, and what runs after all
// gets its grace.
func TestDeletedWhileStarting(t *testing.T) {
	for _, after := range []time.Duration{0, -1} {
		inWorld(t, func(w *world) {
			s := makeSick(w)
			s.set(func(s *sick) { s.starts, s.startsAfter = "a", after })
			w.start()
			w.create("a", annotated("ignore-term", "true"))
			time.Sleep(10 * time.Second)
			w.delete("a", 7)
			time.Sleep(20 * time.Second)
			if p := w.get("a"); p != nil {
				t.Errorf("a is still there: %v", p.GetStatus())
			}
			w.empty()
			if after == 0 {
				w.expect("a", "START main/0 @0s", "TERM main/0 @10s", "KILL main/0 @17s", "EXIT main/0 @17s")
			}
		})
	}
}

// A pod that cannot be stopped is named on the node and on itself; the node stays ready, the others go on, and the
// deletion ends once the runtime answers.
func TestStopIsNotAnswered(t *testing.T) {
	inWorld(t, func(w *world) {
		s := makeSick(w)
		w.start()
		w.create("a", grace(5))
		w.create("b")
		w.settle()
		if c := w.nodeCond("monoplane.dev/KillFailed"); c != nil {
			t.Errorf("the node says %v", c)
		}
		s.set(func(s *sick) { s.stops = "a" })
		w.delete("a", -1)
		time.Sleep(40 * time.Second)
		p := w.phase("a", "Running")
		if c := cond(p, "monoplane.dev/KillFailed"); c.GetStatus() != "True" || c.GetReason() != "FailedKillPod" {
			t.Errorf("the pod says %v", p.GetStatus().GetConditions())
		}
		if c := w.nodeCond("monoplane.dev/KillFailed"); c.GetStatus() != "True" ||
			!strings.Contains(c.GetMessage(), "default/a") {
			t.Errorf("the node says %v", c)
		}
		if c := w.nodeCond("Ready"); c.GetStatus() != "True" {
			t.Errorf("the node is not ready: %v", c)
		}
		if got := fmt.Sprint(w.agent.Stuck()); got != "[default/a]" {
			t.Errorf("stuck: %s", got)
		}
		w.create("c")
		w.delete("b", -1)
		time.Sleep(time.Second)
		w.phase("c", "Running")
		if w.get("b") != nil {
			t.Error("b waits for a")
		}
		w.create("a-too")
		w.settle()
		w.delete("a-too", 1)
		time.Sleep(40 * time.Second)
		if c := w.nodeCond("monoplane.dev/KillFailed"); c.GetMessage() != "not confirmed dead: default/a, default/a-too" {
			t.Errorf("the node says %v", c)
		}
		s.set(func(s *sick) { s.stops = "" })
		time.Sleep(3 * time.Minute)
		if w.get("a") != nil || w.get("a-too") != nil {
			t.Error("a is still there")
		}
		if c := w.nodeCond("monoplane.dev/KillFailed"); c.GetStatus() != "False" || len(w.agent.Stuck()) > 0 {
			t.Errorf("the node says %v", c)
		}
	})
}

// An orderly stop gives up what cannot be confirmed dead, by name, and stops all else.
func TestStopPodsGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		s := makeSick(w)
		w.start()
		w.create("a", grace(5))
		w.create("b", annotated("ignore-term", "true"), grace(60))
		w.settle()
		s.set(func(s *sick) { s.stops = "a" })
		began := time.Now()
		var stuck *nodeagent.StuckError
		err := w.agent.StopPods(w.t.Context(), nil)
		if !errors.As(err, &stuck) || fmt.Sprint(stuck.Pods) != "[default/a]" {
			t.Errorf("StopPods: %v", err)
		}
		if took := time.Since(began); took > 65*time.Second {
			t.Errorf("it took %s", took)
		}
		if n := w.runs(); n != 1 {
			t.Errorf("%d containers run, want the one that is stuck", n)
		}
	})
}

// A pod that is not to run here and cannot be stopped does not keep the agent from coming back; until it has, the Node
// does not say that it is ready. spec: NODE-1, NODE-2
func TestReturnWithStuckPod(t *testing.T) {
	inWorld(t, func(w *world) {
		s := makeSick(w)
		w.start()
		w.create("gone")
		w.create("stays")
		w.settle()
		w.kill()
		w.delete("gone", 0)
		s.set(func(s *sick) { s.stops = "gone" })
		w.create("new")
		w.begin()
		time.Sleep(3 * time.Second)
		if c := w.nodeCond("Ready"); c.GetStatus() != "True" {
			t.Errorf("after 3 s the node says %v", c)
		}
		time.Sleep(3 * time.Second)
		if c := w.nodeCond("Ready"); c.GetStatus() != "False" || !strings.Contains(c.GetMessage(), "restarted") {
			t.Errorf("after 6 s the node says %v", c)
		}
		select {
		case <-w.agent.Ready():
		case <-time.After(time.Minute):
			t.Fatal("one pod keeps the agent from coming back")
		}
		time.Sleep(time.Second)
		w.phase("new", "Running")
		w.expect("stays", "START main/0 @0s")
		if c := w.nodeCond("Ready"); c.GetStatus() != "True" {
			t.Errorf("the node says %v", c)
		}
		if c := w.nodeCond("monoplane.dev/KillFailed"); c.GetStatus() != "True" ||
			!strings.Contains(c.GetMessage(), "default/gone") {
			t.Errorf("the node says %v", c)
		}
		s.set(func(s *sick) { s.stops = "" })
		time.Sleep(3 * time.Minute)
		if n := w.runs(); n != 2 {
			t.Errorf("%d containers run, want 2", n)
		}
	})
}

// While the runtime does not answer at all, a Node that was ready says that it is not. spec: NODE-1
func TestReturnWithoutRuntime(t *testing.T) {
	inWorld(t, func(w *world) {
		m := makeMoody(w, runtimeapi.CgroupDriver_CGROUPFS)
		w.start()
		w.create("a")
		w.settle()
		w.kill()
		w.api.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_List_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		_ = m
		w.begin()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c := w.nodeCond("Ready"); c.GetStatus() != "False" {
			t.Errorf("the node says %v", c)
		}
		w.api.React(nil)
		time.Sleep(20 * time.Second)
		if c := w.nodeCond("Ready"); c.GetStatus() != "True" {
			t.Errorf("the node says %v", c)
		}
	})
}

// The statuses of one pod cannot be read when the agent comes back: the others are adopted, and nothing of that one is
// started or stopped on the strength of what is not known. spec: NODE-2
func TestReturnWithoutOneStatus(t *testing.T) {
	inWorld(t, func(w *world) {
		s := makeSick(w)
		w.start()
		w.create("a", containers("x", "y"), restart("OnFailure"), annotated("exit-after.y", "2s"))
		w.create("b")
		time.Sleep(5 * time.Second)
		before := w.phase("a", "Running").GetStatus()
		w.kill()
		s.set(func(s *sick) { s.looks = "a" })
		began := time.Now()
		w.start()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %s", took)
		}
		w.create("c")
		time.Sleep(time.Minute)
		w.phase("c", "Running")
		if ip := w.phase("a", "Running").GetStatus().GetPodIP(); ip != before.GetPodIP() {
			t.Errorf("the pod's address is %s and was %s", ip, before.GetPodIP())
		}
		s.set(func(s *sick) { s.looks = "" })
		time.Sleep(2 * time.Minute)
		if got := w.starts("a"); len(got) != 2 {
			t.Errorf("started %v", got)
		}
		after := w.phase("a", "Running").GetStatus()
		if x, y := after.GetContainerStatuses()[0], after.GetContainerStatuses()[1]; x.GetState().GetRunning() == nil ||
			y.GetState().GetTerminated().GetReason() != "Completed" || y.GetRestartCount() != 0 {
			t.Errorf("status: %v", after)
		}
	})
}

// A pod is not refused because the node could not be read, and others do not wait for that. spec: LIFE-12
func TestAdmissionWaitsForTheNode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.setLabel("disk", "fast") // the agent does not know yet
		w.api.React(func(ctx context.Context, method string, _ any) error {
			if method != corev1rpc.Nodes_Get_FullMethodName {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		w.create("picky", edit(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
		w.create("plain")
		w.settle()
		w.phase("plain", "Running")
		time.Sleep(35 * time.Second)
		w.phase("picky", "Pending")
		w.api.React(nil)
		time.Sleep(40 * time.Second)
		w.phase("picky", "Running")
	})
}

// Something runs for pods that nobody knows, and the API does not answer about them: the looks go on. spec: NODE-2
func TestUnknownPodsDoNotHoldUpLooks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.swap(fake.Config{MuteEvents: true}) // only looks tell of exits
		w.start()
		w.api.React(func(ctx context.Context, method string, req any) error {
			if r, ok := req.(*metav1.GetRequest); method == corev1rpc.Pods_Get_FullMethodName && ok && r.GetName() == "lost" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		_, err := w.cfg.Runtime.RunPodSandbox(w.t.Context(),
			&runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "lost", Namespace: "default", Uid: "lost"},
				Labels: map[string]string{
					criconfig.LabelPodUID: "lost", criconfig.LabelPodName: "lost", criconfig.LabelPodNamespace: "default",
				},
			}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		w.create("a", restart("Never"), annotated("exit-after", "2s"))
		time.Sleep(6 * time.Second)
		w.phase("a", "Succeeded")
	})
}
