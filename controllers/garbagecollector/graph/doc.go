// Package graph remembers which object names which as its owner, and says after each change which objects are to be
// looked at. It holds ids and edges only, no objects: less than 300 bytes for an object with an owner, of which less
// than 70 for one that neither has nor is an owner.
//
//	             edge: dependent names owner
//	┌───────────┐  blocks deletion?  ┌───────────┐
//	│ dependent │ ──────────────────▶│ owner     │  observed: a watch has shown it
//	│ (a node)  │                    │ (a node)  │  virtual: it is only named
//	└───────────┘                    └───────────┘
//
// An object is looked at when what it names may be gone, or may wait for it, or when it waits itself and what it waits
// for has changed. The graph is level-triggered and never the reason of anything: it says where to look, and who looks
// asks the server. So it may be behind, and two of it do no harm.
//
// Uids are kept as hashes of 128 bits, names of owners as hashes of 32: a reference whose kind, namespace or name does
// not fit the owner is looked at, save for one in four thousand million.
//
// The package knows no client and no clock. Its functions may be called from any goroutine.
package graph
