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

// Typed describes a kind whose objects have type T. See Strategy for what the fields mean. Only Kind is required: what
// is left out is as for any object, whose metadata is checked, whose name is a DNS subdomain, and all of which may
// change.
type Typed[T object.Object] struct {
	Kind            *object.Kind
	RequireRevision bool
	CreateOnUpdate  bool
	ReturnsDeleted  bool
	Spec            func(T) proto.Message
	// Default fills in defaults; DefaultNew takes its place on create, and is Default without the status that was sent
	// where it is left out.
	Default, DefaultNew func(T)
	Admit               func(context.Context, T) error
	Allot               func(context.Context, T) ([]store.Guard, error)
	Validate            func(T) []apierrors.Cause
	Guards              func(context.Context, T) ([]store.Guard, error)
	// Main is the object's own resource; its Apply defaults to taking everything that is asked, with Default, but the
	// status. In Subresources, Apply of status defaults to taking the status alone.
	Main         TypedUpdateRules[T]
	Subresources map[string]TypedUpdateRules[T]
	// Scale says how the subresource scale reads and changes objects; nil for kinds without one.
	Scale      *Scale[T]
	Protected  func(T) error
	Dependents propagation.Default
	Delete     func(context.Context, T, *metav1.DeleteOptions) (Removal, error)
	Takes      func(context.Context, T) ([]store.Op, error)
	Stored     func(ctx context.Context, next, live T)
	Held       func(T) bool
	Warn       func(next, live T) validation.Warnings
	MayRead    func(context.Context, T) error
	Show       func(context.Context, T) T
	// Fields are the selectable fields.
	Fields  map[string]func(T) string
	Indexes []string
	// TTL is how long an object lives after its last write; 0 for ever.
	TTL        time.Duration
	ReadCached bool
	Sealed     bool
	Table      table.Definition
	// Share may be nil.
	Share func(pool *intern.Pool, o, live T)
}

// TypedUpdateRules are UpdateRules for objects of type T.
type TypedUpdateRules[T object.Object] struct {
	Apply     func(asked, live T) T
	Authorize func(ctx context.Context, u *Update, next, live T) error
	Validate  func(next, live T) []apierrors.Cause
	// Keeps is what of the metadata a subresource leaves as it is: nothing in most, as in Kubernetes. Components
	// change nothing of it but what OfComponents says.
	Keeps, OfComponents Metadata
}

// Strategy returns t in terms of objects of any kind.
func (t Typed[T]) Strategy() *Strategy {
	if t.Default == nil {
		t.Default = func(T) {}
	}
	t.split()
	if t.DefaultNew == nil {
		t.DefaultNew = t.Default
	}
	if t.Main.Apply == nil {
		t.Main.Apply = func(asked, _ T) T {
			next := object.Clone(asked)
			t.Default(next)
			return next
		}
	}
	if t.Validate == nil {
		t.Validate = func(o T) []apierrors.Cause { return wrongMeta(t.Kind, o.GetMetadata(), nil) }
	}
	if t.Main.Validate == nil {
		t.Main.Validate = func(next, live T) []apierrors.Cause {
			return wrongMeta(t.Kind, next.GetMetadata(), live.GetMetadata())
		}
	}
	s := &Strategy{
		Kind: t.Kind, RequireRevision: t.RequireRevision, CreateOnUpdate: t.CreateOnUpdate,
		ReturnsDeleted: t.ReturnsDeleted, Indexes: t.Indexes, Table: t.Table,
		ReadCached: t.ReadCached, Sealed: t.Sealed, Dependents: t.Dependents,
		Resources: map[string]*UpdateRules{"": t.Main.resource(true)},
	}
	for name, r := range t.Subresources {
		s.Resources[name] = r.resource(false)
	}
	if t.Scale != nil {
		s.Resources["scale"] = t.Scale.rules()
	}
	s.Default = func(o object.Object) { t.DefaultNew(o.(T)) }
	if t.Spec != nil {
		s.Spec = func(o object.Object) proto.Message { return t.Spec(o.(T)) }
	}
	if t.Admit != nil {
		s.Admit = func(ctx context.Context, o object.Object) error { return t.Admit(ctx, o.(T)) }
	}
	if t.Allot != nil {
		s.Allot = func(ctx context.Context, o object.Object) ([]store.Guard, error) { return t.Allot(ctx, o.(T)) }
	}
	s.Validate = func(o object.Object) []apierrors.Cause { return t.Validate(o.(T)) }
	if t.Guards != nil {
		s.Guards = func(ctx context.Context, o object.Object) ([]store.Guard, error) { return t.Guards(ctx, o.(T)) }
	}
	if t.Warn != nil {
		s.Warn = func(next, live object.Object) validation.Warnings {
			was, _ := live.(T)
			return t.Warn(next.(T), was)
		}
	}
	if t.Protected != nil {
		s.Protected = func(o object.Object) error { return t.Protected(o.(T)) }
	}
	if t.Delete != nil {
		s.Delete = func(ctx context.Context, live object.Object, opts *metav1.DeleteOptions) (Removal, error) {
			return t.Delete(ctx, live.(T), opts)
		}
	}
	if t.Takes != nil {
		s.Takes = func(ctx context.Context, o object.Object) ([]store.Op, error) { return t.Takes(ctx, o.(T)) }
	}
	if t.Stored != nil {
		s.Stored = func(ctx context.Context, next, live object.Object) {
			is, _ := next.(T)
			was, _ := live.(T)
			t.Stored(ctx, is, was)
		}
	}
	if t.Held != nil {
		s.Held = func(o object.Object) bool { return t.Held(o.(T)) }
	}
	if t.MayRead != nil {
		s.MayRead = func(ctx context.Context, o object.Object) error { return t.MayRead(ctx, o.(T)) }
	}
	if t.Show != nil {
		s.Show = func(ctx context.Context, o object.Object) object.Object { return t.Show(ctx, o.(T)) }
	}
	if t.Fields != nil {
		s.Field = func(o object.Object, name string) (string, bool) {
			f, ok := t.Fields[name]
			if !ok {
				return "", false
			}
			return f(o.(T)), true
		}
	}
	if t.Share != nil {
		s.Share = func(pool *intern.Pool, o, live object.Object) {
			was, _ := live.(T)
			t.Share(pool, o.(T), was)
		}
	}
	if t.TTL > 0 {
		s.TTL = func(object.Object) time.Duration { return t.TTL }
	}
	return s
}

func (t TypedUpdateRules[T]) resource(main bool) *UpdateRules {
	r := &UpdateRules{
		Main: main, Metadata: AllMetadata &^ t.Keeps, OfComponents: t.OfComponents,
		Apply: func(asked, live object.Object) object.Object { return t.Apply(asked.(T), live.(T)) },
	}
	if t.Authorize != nil {
		r.Authorize = func(ctx context.Context, u *Update) error {
			return t.Authorize(ctx, u, u.Next.(T), u.Live.(T))
		}
	}
	if t.Validate != nil {
		r.Validate = func(next, live object.Object) []apierrors.Cause { return t.Validate(next.(T), live.(T)) }
	}
	return r
}

// wrongMeta is the validation of a kind of which nothing but the metadata has rules; live is nil for a new object.
func wrongMeta(kind *object.Kind, m, live *metav1.ObjectMeta) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(m, live, kind.Namespaced, validation.NameIsSubdomain)
	}
	return f.Causes()
}
