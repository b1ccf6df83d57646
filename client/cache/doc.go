// Package cache keeps a copy of the objects of one kind, fed by one watch.
//
// What it guarantees:
//   - After HasSynced the content is a state that the server had, and it moves forward in the server's order.
//   - Handlers see every object that appears, changes or disappears, in order, one call at a time, after the
//     content has changed. Changes that fall together while the watch was lost may be seen as one; a
//     disappearance is never missed, also when the server no longer remembers it.
//   - A lost watch is resumed from the last revision seen, after a jittered back-off; only when the server no longer
//     has that revision everything is read again, and objects that vanished meanwhile are reported as deleted.
//   - WaitFor lets a component read its own writes.
//
// Objects are shared with the server: they must not be changed.
//
// What it does not do: it is not a proof that something does not exist. "Unknown to my cache" is never a reason to
// delete anything; ask the server.
package cache
