package fake

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxQueued bounds the events that a slow subscriber may leave waiting.
const maxQueued = 4096

// subscriber is one GetContainerEvents stream.
type subscriber struct {
	mu     sync.Mutex
	queue  []*runtimeapi.ContainerEventResponse
	slow   bool
	signal chan struct{} // of capacity 1: the queue is not empty, or slow is set
}

// GetContainerEvents implements runtimeapi.RuntimeServiceServer. A stream that falls too far behind ends with
// ResourceExhausted; the client lists everything and asks again.
func (r *Runtime) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	if r.cfg.MuteEvents {
		return status.Error(codes.Unimplemented, "this runtime sends no container events")
	}
	s := &subscriber{signal: make(chan struct{}, 1)}
	r.mu.Lock()
	r.subscribers[s] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, s)
	}()
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.signal:
		}
		batch, slow := s.take()
		for _, ev := range batch {
			if err := stream.Send(ev); err != nil {
				return err
			}
		}
		if slow {
			return status.Errorf(codes.ResourceExhausted, "more than %d events were waiting", maxQueued)
		}
	}
}

// publish tells the subscribers about a change in s. The caller holds the lock.
func (r *Runtime) publish(what runtimeapi.ContainerEventType, id string, s *sandbox) {
	if len(r.subscribers) == 0 {
		return
	}
	ev := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: what, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: s.status(), ContainersStatuses: s.containerStatuses(),
	}
	for sub := range r.subscribers {
		sub.add(ev)
	}
}

func (s *subscriber) add(ev *runtimeapi.ContainerEventResponse) {
	s.mu.Lock()
	if len(s.queue) >= maxQueued {
		s.slow = true
	} else {
		s.queue = append(s.queue, ev)
	}
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (s *subscriber) take() ([]*runtimeapi.ContainerEventResponse, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.queue
	s.queue = nil
	return batch, s.slow
}
