// Package podstate decides what a node agent does with one pod. It is a state machine without clock,
// goroutine or I/O: facts go in (what the API says, what the runtime shows, what an action came to, the time),
// actions come out. The agent carries the actions out and feeds their results back.
//
//	            refused                                   containers ended for good, deadline,
//	Admitting ───────────────────────────────┐            eviction, deletion, vanished, node stops
//	    │ admitted, or found running here    ▼                              │
//	    └────────► Active ─────────────► Stopping ◄─────────────────────────┘
//	               sandbox, then init       │ TERM, grace, KILL; sandbox stopped;
//	               containers in order,     │ a full observation shows that nothing is left
//	               then the others          ▼
//	                                     Stopped ── terminal phase is written, unless the node stops
//	                                        │ marked for deletion, or vanished
//	                                        ▼
//	                                     Removing ── sandboxes, containers and logs removed, then the object
//	                                        ▼        deleted with grace 0 and its uid
//	                                      Gone
//
// A container in Active:
//
//	(none) ── start ──► running ── exit ──► exited ── restart policy, back-off ──► running (next attempt)
//	   └─ start failed: retried with back-off
//
// Guarantees: a life never goes back and a phase never moves back (LIFE-1); a terminal phase is asked for only
// after an observation that nothing of the pod is left (LIFE-10); a stop always gives the whole grace period
// unless a shorter one was asked for (TERM-1, TERM-3, DEL-10), and what is stopped at all is stopped through
// CRI calls that return when the processes are gone (TERM-4); a pod is taken for vanished only after a live
// read said so (DEL-9); a failed action is tried again, with back-off, for as long as it takes.
//
// It does not know CRI or gRPC, admit pods (it asks), or keep anything across a restart: a Machine made from a
// fresh observation and the API object goes on where the old one was.
package podstate
