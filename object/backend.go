package object

import (
	"context"

	metav1 "monoplane.dev/api/meta/v1"
)

// EventType says what happened to an object.
type EventType string

// The types of watch events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
	Error    EventType = "ERROR"
)

// InitialEventsEnd is the annotation on the bookmark that ends the initial events of a watch.
const InitialEventsEnd = "k8s.io/initial-events-end"

// Event is one change that a watcher sees.
type Event struct {
	// Type says what happened.
	Type EventType
	// Object is the object after the change, or as it was last when it was deleted. A bookmark carries an
	// otherwise empty object with a resourceVersion. Nil with Error.
	Object Object
	// Status says what went wrong; only with Error.
	Status *metav1.Status
}

// WriteOptions are the options that every write takes.
type WriteOptions struct {
	// DryRun holds "All" when nothing is to be stored.
	DryRun []string
	// FieldManager names the program that writes.
	FieldManager string
	// FieldValidation is "Strict", "Warn" or "Ignore"; empty counts as "Warn".
	FieldValidation string
}

// Items is the answer to a list.
type Items struct {
	// Meta carries the revision of the snapshot and the token to go on with.
	Meta *metav1.ListMeta
	// Objects are in the order of their keys.
	Objects []Object
}

// Backend serves one kind. The generated service adapters (such as corev1rpc.PodsBackend) translate a typed
// gRPC service to it. Subresource is "" for the object itself, or "status", "finalize" and the like.
// Errors are made by package apierrors.
type Backend interface {
	Get(ctx context.Context, req *metav1.GetRequest) (Object, error)
	// GetPart returns a part of an object that has a shape of its own, such as "scale".
	GetPart(ctx context.Context, subresource string, req *metav1.GetRequest) (Object, error)
	List(ctx context.Context, req *metav1.ListRequest) (Items, error)
	// Watch calls send with batches of events, oldest first, until ctx ends or send fails. It calls accept
	// once, as soon as it knows that the watch can be served, so that headers can be sent at once.
	Watch(ctx context.Context, req *metav1.WatchRequest, accept func() error, send func([]Event) error) error
	Create(ctx context.Context, namespace string, o Object, opts WriteOptions) (Object, error)
	Update(ctx context.Context, namespace, name, subresource string, o Object, opts WriteOptions) (Object, error)
	Patch(ctx context.Context, subresource string, req *metav1.PatchRequest) (Object, error)
	// Delete returns the object as the deletion left it.
	Delete(ctx context.Context, req *metav1.DeleteRequest) (Object, error)
	DeleteCollection(ctx context.Context, req *metav1.DeleteCollectionRequest) (Items, error)
}
