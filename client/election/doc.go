// Package election lets one of several processes work at a time: the one that holds a Lease. It is the election of
// Kubernetes' controller manager, with the same fields of the Lease and the same times, so that kubectl and other
// tools see who leads.
//
//	          the Lease is free, or its holder has not renewed it for its duration
//	candidate ─────────────────────────────────────────────────────────────────────▶ leader
//	candidate ◀───────────────────────────────────────────────────────────────────── leader
//	          another holds it, or it could not be renewed for RenewDeadline
//
// What it guarantees: a term ends RenewDeadline after the last renewal at the latest, and nobody else begins
// before LeaseDuration has passed since then. Both are measured by each process with its own clock, as times that
// pass: what clocks show does not count, and a machine whose clock is set does not lose its term. When a term
// ends, its context is cancelled, and the connection that Term.Conn returns makes no more calls. A process that
// stood still knows at its next call that its term is over; a single call that was on its way then is for the
// server to judge, by the revision and the uid that it names. A leader that ends in order gives the Lease back
// when its work has ended.
//
// What it does not do: it elects no more than one, and does not choose among candidates.
package election
