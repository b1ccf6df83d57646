package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// Who subscribes is told of each step of sandboxes and containers, in order, with the state after it, and of the end
// of the runtime.
//
// spec: CTR-4
func TestEvents(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	s := inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(s, n.Runtime)
	defer s.Stop()
	c := runtimeapi.NewRuntimeServiceClient(s.Conn())
	stream, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil { // from here on nothing is missed
		t.Fatal(err)
	}
	sb := n.sandbox("pod")
	id := n.run(sb, containerConfig("main", "/bin/sh", "-c", "exit 3"))
	n.wait(id)
	if err := n.remove(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer(sb, "sandbox", id, "container", "CONTAINER_", "", "_EVENT", "")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "sandbox DELETED" {
		ev, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, names.Replace(fmt.Sprint(ev.GetContainerId(), " ", ev.GetContainerEventType())))
		if ev.GetPodSandboxStatus().GetId() != sb {
			t.Errorf("%s is of sandbox %q", got[len(got)-1], ev.GetPodSandboxStatus().GetId())
		}
		if got[len(got)-1] == "container STOPPED" && (len(ev.GetContainersStatuses()) != 1 ||
			ev.GetContainersStatuses()[0].GetExitCode() != 3) {
			t.Errorf("with the end come the statuses %v", ev.GetContainersStatuses())
		}
	}
	want := []string{
		"sandbox STARTED", "container CREATED", "container STARTED", "container STOPPED", "sandbox STOPPED",
		"container DELETED", "sandbox DELETED",
	}
	if !slices.Equal(got, want) {
		t.Errorf("told of %q, want %q", got, want)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("after the runtime has ended: %v", err)
	}
	n.open()
}

// Of a container that ends at once the end may be known before the start: both are told all the same, unless it never
// ran.
func TestEventsOfWhatEndsAtOnce(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	sb := n.sandbox("pod")
	for name, c := range map[string]struct {
		pid  int64
		want []runtimeapi.ContainerEventType
	}{
		"ran": {1 << 22, []runtimeapi.ContainerEventType{runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
			runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT}},
		"never ran": {0, []runtimeapi.ContainerEventType{runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT}},
	} {
		id := n.create(sb, containerConfig(strings.ReplaceAll(name, " ", "-"), "true"))
		s := &subscriber{queue: make(chan *runtimeapi.ContainerEventResponse, maxQueued), slow: make(chan struct{})}
		n.mu.Lock()
		n.subscribers = map[*subscriber]struct{}{s: {}}
		n.mu.Unlock()
		for _, phase := range []shimwire.Phase{shimwire.Exited, shimwire.Running} {
			n.noteEvent(n.sandboxes[sb], shimwire.Container{ID: id, Phase: phase, PID: c.pid})
		}
		var got []runtimeapi.ContainerEventType
		for len(s.queue) > 0 {
			got = append(got, (<-s.queue).GetContainerEventType())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: told of %v, want %v", name, got, c.want)
		}
	}
}

// Whoever learns that a sandbox has ended, and removes it, does not overtake the event that says so.
func TestEndIsToldBeforeItIsKnown(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	for i := range 30 {
		id := n.plainSandbox(fmt.Sprint("pod-", i))
		sb := n.sandboxOf(id)
		s := &subscriber{queue: make(chan *runtimeapi.ContainerEventResponse, maxQueued), slow: make(chan struct{})}
		n.mu.Lock()
		n.subscribers = map[*subscriber]struct{}{s: {}}
		n.mu.Unlock()
		told := make(chan int, 1)
		go func() {
			for isGone := false; !isGone; { // without a pause, to be there at once
				n.mu.Lock()
				if isGone = sb.isGone(); isGone {
					told <- len(s.queue)
				}
				n.mu.Unlock()
			}
		}()
		if err := n.remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if <-told == 0 {
			t.Fatalf("sandbox %d was gone, and no event had said so", i)
		}
		if ev := <-s.queue; ev.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			t.Errorf("the first event is %v", ev)
		}
	}
}

// Nobody chooses the cgroup driver of this runtime, which makes the groups of pods itself.
func TestRuntimeConfig(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	resp, err := n.RuntimeConfig(t.Context(), &runtimeapi.RuntimeConfigRequest{})
	if err != nil || resp.GetLinux() != nil {
		t.Errorf("%v, %v", resp, err)
	}
}
