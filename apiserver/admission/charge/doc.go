// Package charge lets objects be created, and made larger, only as far as the ResourceQuotas of their namespace go.
//
// What is used is what the objects have that there are: no number beside them is trusted, so that none can be wrong
// after a failure. To add all of it up for every write would take too long. Therefore one server at a time holds the
// turn of a namespace (store.Store.TakeTurn), adds up once, and from then on adds to that sum what it lets through.
// Each write that takes something has as a condition that the turn is still held.
//
//	     ┌────────────── another server took the turn, or nobody knows how a write ended ◄─┐
//	     ▼                                                                                  │
//	not held ── take the turn, add up ──► held ── the sum has room ──► charged ── written ──┤
//	                                     ▲  │                             │                 │
//	                                     │  │ the sum has no room,        └─ not written:   │
//	                                     │  │ or the quotas changed          taken back ────┤
//	                                     │  ▼                                               │
//	                                 wait for those that are charged, add up again ◄────────┘
//	                                        │
//	                                        └── still no room ──► refused
//
// Invariant: while the turn is held, the sum of each quota is at least what the objects have that are stored, together
// with those that are charged and not yet settled. Deletions make the sum too large, never too small, and are noticed
// when there seems to be no room.
//
// It guarantees that no interleaving of writes, on any number of servers, lets objects have more than a quota allows,
// nor refuses what there was room for the whole time; and that writes that fail take nothing. Writes of one namespace
// wait for each other only while one of them is judged. A quota that is lowered below what is used deletes nothing.
package charge
