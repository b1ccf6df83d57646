package fake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	t       *testing.T
	rt      *fake.Runtime
	c       runtimeapi.RuntimeServiceClient
	began   time.Time
	mu      sync.Mutex
	journal []string
}

func inRig(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, began: time.Now()}
		r.rt = fake.New(fake.Config{Journal: func(e fake.Entry) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.journal = append(r.journal, fmt.Sprintf("%s@%s", e.What, e.Time.Sub(r.began)))
		}})
		s := inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(s, r.rt)
		defer s.Stop()
		r.c = runtimeapi.NewRuntimeServiceClient(s.Conn())
		f(r)
	})
}

// run makes a sandbox and starts a container in it.
func (r *rig) run(annotations ...string) (sandbox, container string) {
	r.t.Helper()
	m := make(map[string]string)
	for i := 0; i < len(annotations); i += 2 {
		m[fake.Prefix+annotations[i]] = annotations[i+1]
	}
	ctx := r.t.Context()
	s, err := r.c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}, Labels: map[string]string{"l": "1"},
		Annotations: m,
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := r.c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: s.GetPodSandboxId(),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "x"},
		}})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.c.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		r.t.Fatal(err)
	}
	return s.GetPodSandboxId(), c.GetContainerId()
}

func (r *rig) state(id string) *runtimeapi.ContainerStatus {
	r.t.Helper()
	s, err := r.c.ContainerStatus(r.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		r.t.Fatal(err)
	}
	return s.GetStatus()
}

func (r *rig) stop(id string, timeout int64) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := r.c.StopContainer(r.t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout})
		done <- err
	}()
	synctest.Wait()
	return done
}

func (r *rig) expect(want string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.journal, " "); got != want {
		r.t.Errorf("got %s, want %s", got, want)
	}
}

func TestExits(t *testing.T) {
	inRig(t, func(r *rig) {
		_, id := r.run("exit-after", "5s", "exit-code.c", "3", "exit-code", "9")
		time.Sleep(6 * time.Second)
		if s := r.state(id); s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 3 ||
			s.GetReason() != "Error" {
			t.Errorf("status: %v", s)
		}
		r.expect("START@0s EXIT@5s")
	})
}

// Stops overlap: TERM is sent once, the earliest KILL wins, and every call returns at the exit.
func TestOverlappingStops(t *testing.T) {
	inRig(t, func(r *rig) {
		_, id := r.run("ignore-term", "true")
		first := r.stop(id, 30)
		time.Sleep(5 * time.Second)
		second := r.stop(id, 5)
		for _, done := range []<-chan error{first, second} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		r.expect("START@0s TERM@0s KILL@10s EXIT@10s")
		if s := r.state(id); s.GetExitCode() != 137 {
			t.Errorf("status: %v", s)
		}
	})
}

func TestObeysTerm(t *testing.T) {
	inRig(t, func(r *rig) {
		_, id := r.run("stop-after", "2s", "stop-code", "0", "exit-after", "1h")
		if err := <-r.stop(id, 30); err != nil {
			t.Error(err)
		}
		r.expect("START@0s TERM@0s EXIT@2s")
		time.Sleep(2 * time.Hour) // its own end does not come again
		r.expect("START@0s TERM@0s EXIT@2s")
	})
}

func TestSandboxEndsAll(t *testing.T) {
	inRig(t, func(r *rig) {
		box, id := r.run()
		ctx := r.t.Context()
		for range 2 { // both calls may be repeated
			if _, err := r.c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box}); err != nil {
				t.Error(err)
			}
		}
		if s := r.state(id); s.GetExitCode() != 137 {
			t.Errorf("status: %v", s)
		}
		if _, err := r.c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box}); err == nil {
			t.Error("a container was made in a dead sandbox")
		}
		for range 2 {
			if _, err := r.c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box}); err != nil {
				t.Error(err)
			}
		}
		l, err := r.c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil || len(l.GetContainers()) != 0 {
			t.Errorf("%v are left, %v", l, err)
		}
	})
}

func TestEvents(t *testing.T) {
	inRig(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		stream, err := r.c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Header(); err != nil {
			t.Fatal(err)
		}
		r.run("exit-after", "1s")
		for _, want := range []runtimeapi.ContainerEventType{
			runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
			runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		} {
			ev, err := stream.Recv()
			if err != nil || ev.GetContainerEventType() != want || ev.GetPodSandboxStatus().GetMetadata().GetUid() != "u" ||
				len(ev.GetContainersStatuses()) != 1 {
				t.Errorf("got %v, %v, want %v", ev, err, want)
			}
		}
		cancel()
		if _, err := stream.Recv(); err == nil {
			t.Error("the stream goes on")
		}
	})
}

func TestFilters(t *testing.T) {
	inRig(t, func(r *rig) {
		box, _ := r.run()
		for want, f := range map[*runtimeapi.PodSandboxFilter]int{
			nil: 1, {Id: box}: 1, {Id: "other"}: 0, {LabelSelector: map[string]string{"l": "1"}}: 1,
			{LabelSelector: map[string]string{"l": "2"}}:                                                  0,
			{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}}: 0,
		} {
			l, err := r.c.ListPodSandbox(r.t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: want})
			if err != nil || len(l.GetItems()) != f {
				t.Errorf("%v: %d, %v", want, len(l.GetItems()), err)
			}
		}
	})
}

func TestFault(t *testing.T) {
	rt := fake.New(fake.Config{Fault: func(method, _ string) error { return errors.New(method + " fails") }})
	if _, err := rt.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{}); err == nil ||
		err.Error() != "StopContainer fails" {
		t.Errorf("got %v", err)
	}
}

// What was saved comes back as it was, in time; what cannot be read changes nothing.
func TestSaveAndRestore(t *testing.T) {
	inRig(t, func(r *rig) {
		box, id := r.run("exit-after", "10s", "exit-code", "3")
		before := r.state(id)
		var file bytes.Buffer
		if err := r.rt.Save(&file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		next := fake.New(fake.Config{})
		if err := next.Restore(file.Bytes()[:file.Len()/2]); err == nil {
			t.Error("half a file was taken up")
		}
		if err := next.Restore(file.Bytes()); err != nil {
			t.Fatal(err)
		}
		status := func() *runtimeapi.ContainerStatus {
			s, err := next.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
			if err != nil {
				t.Fatal(err)
			}
			return s.GetStatus()
		}
		if !proto.Equal(status(), before) {
			t.Errorf("container: %v, was %v", status(), before)
		}
		list, err := next.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(list.GetItems()) != 1 || list.GetItems()[0].GetId() != box ||
			list.GetItems()[0].GetLabels()["l"] != "1" {
			t.Errorf("sandboxes: %v, %v", list, err)
		}
		time.Sleep(5 * time.Second)
		if s := status(); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("ended early: %v", s)
		}
		time.Sleep(2 * time.Second)
		if s := status(); s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 3 {
			t.Errorf("still there: %v", s)
		}
	})
}
