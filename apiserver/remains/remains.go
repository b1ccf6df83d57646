// Package remains takes past a method that answers with a Status what whoever deletes an object over REST sees of it:
// the object, when something holds it, or when its kind is shown as it was.
package remains

import (
	"context"

	"monoplane.dev/object"
)

// Remains is what a deletion leaves for the answer; nil for a Status.
type Remains struct{ Object object.Object }

type key struct{}

// With returns a context by which a server in the same process says what remains.
func With(ctx context.Context) (context.Context, *Remains) {
	r := new(Remains)
	return context.WithValue(ctx, key{}, r), r
}

// Show says what remains, if anybody listens.
func Show(ctx context.Context, o object.Object) {
	if r, ok := ctx.Value(key{}).(*Remains); ok {
		r.Object = o
	}
}
