package cache

import (
	"context"

	"google.golang.org/grpc"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// Event is one change as a watch delivers it.
type Event[T object.Object] struct {
	Type   object.EventType
	Object T
	Status *metav1.Status
}

// Source starts a watch and returns a function that waits for the next batch. The watch ends with ctx.
type Source[T object.Object] func(ctx context.Context, req *metav1.WatchRequest) (next func() ([]Event[T], error),
	err error)

// event is what generated watch events, such as corev1.PodEvent, have in common.
type event[T any] interface {
	GetType() string
	GetObject() T
	GetStatus() *metav1.Status
}

// batch is what generated watch batches, such as corev1.PodEvents, have in common.
type batch[E any] interface{ GetEvents() []E }

// stream is what the streams that generated Watch methods return have in common.
type stream[B any] interface{ Recv() (B, error) }

// Watch makes a Source of the Watch method of a generated client, as in cache.Watch(c.Pods.Watch).
func Watch[S stream[B], B batch[E], E event[T], T object.Object](
	watch func(context.Context, *metav1.WatchRequest, ...grpc.CallOption) (S, error),
) Source[T] {
	return func(ctx context.Context, req *metav1.WatchRequest) (func() ([]Event[T], error), error) {
		s, err := watch(ctx, req)
		if err != nil {
			return nil, err
		}
		return func() ([]Event[T], error) {
			b, err := s.Recv()
			if err != nil {
				return nil, err
			}
			in := b.GetEvents()
			out := make([]Event[T], len(in))
			for i, e := range in {
				out[i] = Event[T]{Type: object.EventType(e.GetType()), Object: e.GetObject(), Status: e.GetStatus()}
			}
			return out, nil
		}, nil
	}
}
