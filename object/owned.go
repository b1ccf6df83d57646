package object

import "context"

type ownedKey struct{}

// WithOwned says that the objects in the request that ctx belongs to were made for it and are nobody else's, as
// those that come over a network are. The server may then store them as they are, without a copy.
func WithOwned(ctx context.Context) context.Context { return context.WithValue(ctx, ownedKey{}, true) }

// Owned says whether the objects in the request that ctx belongs to may be changed.
func Owned(ctx context.Context) bool { return ctx.Value(ownedKey{}) != nil }
