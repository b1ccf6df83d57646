// Package deletion holds the rules by which a pod is deleted, as one pure function: Decide takes the pod as
// the store has it, what is asked, who asks and what time it is, and says what to write. The registry calls
// it anew for every attempt of its compare-and-swap, so a decision is always about the very revision that
// the transaction compares (spec: DEL-1 to DEL-6, DEL-8, DEL-14).
//
// # The states of a pod's deletion
//
//	                 graceful, bound, not terminal
//	┌──────────┐     (mark: deadline = now + grace)     ┌─────────────┐ shorter grace
//	│ Live     │ ──────────────────────────────────────▶│ Terminating │ ◀─┐ (mark again,
//	│ no mark  │                                        │ grace > 0   │ ──┘  never longer)
//	└──────────┘                                        └─────────────┘
//	  │      │                                             │       │
//	  │      │ graceful, but unbound or terminal;          │       │ grace 0: by the pod's own agent
//	  │      │ or forced (grace 0 in the request)          │       │ once it is terminal, by PodGC,
//	  │      │                                             │       │ or forced by a user
//	  │      └───────────────┐               ┌─────────────┘       │
//	  │                      ▼ finalizers    ▼ finalizers          │
//	  │                   ┌─────────────────────┐                  │
//	  │ no finalizers     │ Held: grace = 0     │                  │ no finalizers
//	  │                   └─────────────────────┘                  │
//	  │                      │ last finalizer removed              │
//	  ▼                      ▼                                     ▼
//	┌──────────────────────────────────────────────────────────────────┐
//	│ Gone: the name is free                                           │
//	└──────────────────────────────────────────────────────────────────┘
//
// No arrow is drawn by the clock: a deadline that has passed changes nothing (DEL-6). No arrow goes back.
//
// # Who may do what
//
//	agent of the pod's node   grace 0, with the uid, on a marked pod that it has reported terminal, or on a
//	                          mirror pod; nothing else
//	PodGC                     begin or shorten; grace 0 with the uid on terminal pods, on marked pods that were
//	                          never bound, on pods whose node does not exist, and on marked pods whose node
//	                          is out of service
//	scheduler, controllers    begin or shorten, with the uid; never grace 0
//	users                     everything; grace 0 is recorded and warned about
//
// The package knows no store, no context and no clock. It does not decide who somebody is (see package
// auth) and does not write anything.
package deletion
