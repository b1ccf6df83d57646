// Package service describes the gRPC services of the kinds. The generator (cmd/protoc-gen-monoplane) makes one
// Service for each in package api/services, and whoever serves kinds ranges over those: the gRPC server, the REST
// front, tests.
package service

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Service is the gRPC service of one kind. It never changes.
type Service struct {
	// Kind is the kind that the service reads and writes.
	Kind *object.Kind
	// Desc is what a gRPC server asks for to register the service.
	Desc *grpc.ServiceDesc
	// Descriptor describes the service with the google.api.http rules of its methods.
	Descriptor protoreflect.ServiceDescriptor
	// Events passes the events of one message of the Watch method to yield until that returns false; nil without such
	// a method.
	Events func(m proto.Message, yield func(object.Event) bool)
	// Adapt serves the standard methods from a backend. The others stay unimplemented.
	Adapt func(object.Backend) any
}

// Methods returns the names of the service's methods, such as "Get".
func (s *Service) Methods() []string {
	names := make([]string, 0, len(s.Desc.Methods)+len(s.Desc.Streams))
	for _, m := range s.Desc.Methods {
		names = append(names, m.MethodName)
	}
	for _, m := range s.Desc.Streams {
		names = append(names, m.StreamName)
	}
	return names
}

// Stores says whether the server keeps objects of the kind, in its own shape.
func (s *Service) Stores() bool { return !s.Kind.View && slices.Contains(s.Methods(), "Get") }

// batch is a message of a Watch method, such as *corev1.PodEvents.
type batch[E any] interface {
	proto.Message
	GetEvents() []E
}

// event is an element of a batch, such as *corev1.PodEvent.
type event[O object.Object] interface {
	GetType() string
	GetObject() O
	GetStatus() *metav1.Status
}

// EventsOf is Service.Events for batches of type B.
func EventsOf[B batch[E], E event[O], O object.Object](m proto.Message, yield func(object.Event) bool) {
	b, ok := m.(B)
	if !ok {
		return
	}
	for _, e := range b.GetEvents() {
		ev := object.Event{Type: object.EventType(e.GetType()), Status: e.GetStatus()}
		if ev.Type != object.Error {
			ev.Object = e.GetObject()
		}
		if !yield(ev) {
			return
		}
	}
}
