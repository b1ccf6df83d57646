// Package fieldmanager knows who owns which fields of an object: metadata.managedFields and server-side apply (spec:
// OBJ-9, OBJ-17). docs/apply.md says how it is meant to be seen from outside.
//
//	create, update, patch   Kind.Update: what the write has changed is its manager's from now on, and nobody else's
//	apply                   Kind.Apply: merges what is applied into the live object, by structured-merge-diff
//
// Every write passes Update, so it is made to be fast: it walks over two messages side by side, steps over the parts
// that they share by pointer, and touches only the entries that lose or gain a path. Apply is as slow as
// structured-merge-diff, whose schema is made from the same options of the .proto (see shape). Both say of the same
// change the same, and the same as Kubernetes' own field manager; test/oracle compares them.
//
// Guarantees: the arguments are never changed; what is returned shares with them what is equal; nothing is returned
// that a later call cannot read. An object without entries (one from before there were any, or one whose entries have
// been taken away) gets none until it is applied.
//
// The package stores nothing and knows no rights. Which fields of a request count (the status is not that of a write
// of the object itself) is what the caller says.
package fieldmanager
