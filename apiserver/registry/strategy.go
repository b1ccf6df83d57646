package registry

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/internal/intern"
	"monoplane.dev/object"
	"monoplane.dev/rules/propagation"

	metav1 "monoplane.dev/api/meta/v1"
)

// Strategy is what is special about a kind. Only Kind is required; make one from a Typed, which knows the
// type of the objects. Functions get objects that they may change only where it says so.
type Strategy struct {
	// Kind is the kind that is stored.
	Kind *object.Kind
	// RequireRevision refuses updates without a resourceVersion (OBJ-2).
	RequireRevision bool
	// CreateOnUpdate makes the object that an update is about when it is not there.
	CreateOnUpdate bool
	// ReturnsDeleted says that REST answers a deletion with the object although gRPC answers with a Status.
	ReturnsDeleted bool

	// Spec returns what generation counts the changes of; nil for kinds without a generation.
	Spec func(o object.Object) proto.Message
	// Default fills in defaults on create. It may change o.
	Default func(o object.Object)
	// Admit readies a new object, which it may change, and refuses it on grounds other than its fields: rights,
	// other objects. It runs between Default and Validate.
	Admit func(ctx context.Context, o object.Object) error
	// Allot gives a new object what no two objects may have, such as an address, and returns the guards by which the
	// transaction finds out that somebody else has taken it. It runs between Admit and Validate, and once more on a
	// fresh copy when a guard has failed; it may change o.
	Allot func(ctx context.Context, o object.Object) ([]store.Guard, error)
	// Validate lists every bad field, those of the metadata included.
	Validate func(o object.Object) []apierrors.Cause
	// Guards returns what must hold of other objects in the transaction that creates o, or refuses o because of them;
	// nil for nothing. It runs after Validate, anew for each attempt, so that it judges what the transaction
	// compares.
	Guards func(ctx context.Context, o object.Object) ([]store.Guard, error)

	// Resources are the ways to update the object: "" for the object itself, and subresources.
	Resources map[string]*UpdateRules
	// Protected refuses the deletion of objects that nobody may delete, whatever the options: the system's own.
	Protected func(o object.Object) error
	// Dependents is what becomes of those that name a deleted object as their owner, when nobody says it (OBJ-12).
	Dependents propagation.Default
	// Delete decides on a deletion; without it finalizers hold, and otherwise the object goes. The object that it gets
	// has the finalizers that the request wants for its dependents.
	Delete func(ctx context.Context, live object.Object, opts *metav1.DeleteOptions) (Removal, error)
	// Takes returns operations that remove what goes with an object, in the transaction that removes the object itself;
	// nil for nothing. A transaction changes one object of a kind.
	Takes func(ctx context.Context, o object.Object) ([]store.Op, error)
	// Stored is told what a request has changed, once that is stored: live is nil for a new object, and next for one that
	// is gone. Dry runs store nothing.
	Stored func(ctx context.Context, next, live object.Object)
	// Warn returns what whoever makes an object, or changes it (not a subresource of it), is told though it is done.
	// Nothing is wrong with next; live is nil when it is new. Nil for nothing.
	Warn func(next, live object.Object) validation.Warnings
	// Held says whether something other than finalizers holds an object that is being deleted.
	Held func(o object.Object) bool
	// MayRead refuses to show an object to the caller.
	MayRead func(ctx context.Context, o object.Object) error

	// Show returns what the caller sees of an object, which it does not change; nil for all of it. What is less than
	// that has annotation object.PartOfRevision in place of a resourceVersion: bodies are shared by revision between all
	// who read.
	Show func(ctx context.Context, o object.Object) object.Object

	// Field returns the value of a selectable field, ok false for any other. metadata.name and
	// metadata.namespace are built in.
	Field func(o object.Object, name string) (value string, ok bool)
	// Indexes are selectable fields that are often selected by.
	Indexes []string
	// TTL is how long an object lives after its last write; nil for ever.
	TTL func(o object.Object) time.Duration
	// ReadCached says that other kinds look objects up in the cache without waiting for it. A write is answered only
	// when this server's caches have it, so that it counts for whatever the client does next.
	ReadCached bool
	// Sealed kinds are encrypted in the database.
	Sealed bool
	// Share replaces parts of o by equal ones from the pool; see store.Collection.
	Share func(pool *intern.Pool, o, live object.Object)
	// Table has the columns and cells of kubectl get.
	Table table.Definition
}

// UpdateRules are those of one way to update an object.
type UpdateRules struct {
	// Apply returns a new object: live as the update that asked describes leaves it, with defaults. Neither is
	// changed; what the result does not change it may share with live, but not with asked. Metadata is merged by
	// the registry.
	Apply func(asked, live object.Object) object.Object
	// Main says that the update is one of the object itself, and may change its metadata as it likes.
	Main bool
	// Metadata is what an update of a subresource changes of the metadata, OfComponents what one by a part of the
	// control plane does: those send what they have seen of an object, or less, and mean its status.
	Metadata, OfComponents Metadata
	// Authorize refuses an update because of who asks, on the revision that will be compared. It may add guards,
	// and change Next where only the server writes it.
	Authorize func(ctx context.Context, u *Update) error
	// Validate lists every bad field of the update, those of the metadata included.
	Validate func(next, live object.Object) []apierrors.Cause
	// Shape is set where clients read and write a kind of its own: what is asked is an object of that kind. Nil where
	// they see the object itself.
	Shape *Shape
}

// Metadata is a part of the metadata.
type Metadata uint8

// The parts of the metadata that clients write.
const (
	Labels Metadata = 1 << iota
	Annotations
	Owners
	Finalizers

	AllMetadata = Labels | Annotations | Owners | Finalizers
)

// Shape shows an object as another kind.
type Shape struct {
	// Kind is what clients see.
	Kind *object.Kind
	// Of returns an object in this shape. It does not change it, and may share its parts.
	Of func(o object.Object) object.Object
}

// Update is one attempt to update an object.
type Update struct {
	// Live is the object as it is, Next as it would be.
	Live, Next object.Object
	// StatesUID is true when the request itself names the uid, so that it cannot mean a successor (DEL-11).
	StatesUID bool
	// Guards become conditions of the transaction.
	Guards []store.Guard
}

// Removal is what a strategy decides about a deletion.
type Removal struct {
	// Object is the object as the deletion leaves it, for the store unless Gone or Unchanged, and for the answer.
	Object object.Object
	// Gone removes the object, Unchanged leaves it as it is.
	Gone, Unchanged bool
	// Guards become conditions of the transaction, and Ops further operations of it.
	Guards []store.Guard
	Ops    []store.Op
	// Done is called once when the deletion has been stored; nil for nothing.
	Done func()
}

// View serves stored objects as another kind: events in two groups, autoscalers in two versions. Reads and watches
// show what Out makes of an object; a write is taken apart by In, and then judged as one of the stored kind. Only
// Kind, In and Out are required.
type View struct {
	// Kind is what clients see.
	Kind *object.Kind
	// In and Out convert an object to and from the stored kind. They do not change it, and may share its parts.
	In, Out func(o object.Object) object.Object
	// Field renames a selectable field to the stored kind's; ok is false when there is none. Without it the names are
	// the same.
	Field func(name string) (stored string, ok bool)
	// Validate lists every bad field of a new object as clients see it, in place of the stored kind's Validate.
	Validate func(o object.Object) []apierrors.Cause
	// ValidateUpdate lists every bad field of an update of the object itself as clients see it, in place of what the
	// stored kind's resource has.
	ValidateUpdate func(next, live object.Object) []apierrors.Cause
}
