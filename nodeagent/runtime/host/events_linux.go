package host

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// maxQueued is how many events may wait for a client of GetContainerEvents.
const maxQueued = 1024

// subscriber is one GetContainerEvents stream.
type subscriber struct {
	queue chan *runtimeapi.ContainerEventResponse
	slow  chan struct{} // Closed when the queue was full once. Guarded by Runtime.mu.
	late  bool
}

// GetContainerEvents streams what happens to containers and sandboxes. A client that falls too far behind gets
// ResourceExhausted: it lists everything and subscribes again.
func (r *Runtime) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	s := &subscriber{queue: make(chan *runtimeapi.ContainerEventResponse, maxQueued), slow: make(chan struct{})}
	r.mu.Lock()
	r.subscribers[s] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.subscribers, s)
		r.mu.Unlock()
	}()
	// A client that has the header knows that it will miss nothing from here on.
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		select {
		case ev := <-s.queue:
			if err := stream.Send(ev); err != nil {
				return err
			}
		case <-s.slow:
			return status.Errorf(codes.ResourceExhausted, "more than %d events were waiting", maxQueued)
		case <-r.closing.Done():
			return unavailable("the runtime is closing")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// publishLocked tells every subscriber of an event, with the state of the whole sandbox after it. Whoever changes the
// state holds the lock meanwhile, so that nobody hears of what came after before it.
func (r *Runtime) publishLocked(sb *sandbox, id string, t runtimeapi.ContainerEventType) {
	for s := range r.subscribers {
		// One message each: receivers of an in-process connection own what they get.
		ev := &runtimeapi.ContainerEventResponse{
			ContainerId: id, ContainerEventType: t, CreatedAt: now(), PodSandboxStatus: sb.statusLocked(),
		}
		for _, c := range sb.listLocked() {
			ev.ContainersStatuses = append(ev.ContainersStatuses, c.statusLocked())
		}
		select {
		case s.queue <- ev:
		default:
			if !s.late {
				s.late = true
				close(s.slow)
			}
		}
	}
}

// noteEvent takes in what a shim says of a container, and publishes it in the order in which it is taken in. Of what
// ends at once the end may be all that is said.
func (r *Runtime) noteEvent(sb *sandbox, rec shimwire.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[rec.ID]; c != nil && c.sb == sb {
		r.takeInLocked(c, rec)
	}
}

// takeInLocked takes in what is known of a container, and publishes what is new of it.
func (r *Runtime) takeInLocked(c *container, rec shimwire.Container) {
	before := c.state.Phase
	if !c.mergeLocked(rec) {
		return
	}
	if before < shimwire.Running && rec.PID != 0 {
		r.publishLocked(c.sb, c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	if rec.Phase == shimwire.Exited {
		r.publishLocked(c.sb, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}
