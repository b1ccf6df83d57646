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
//	   │ └─ start failed: retried with back-off
//	   └─ start not answered: see stray; nothing more is started until it is known to run or can no longer start
//	running, and the runtime does not know its state: neither started nor ready, stopped ──► exited
//
// What a running instance has besides its process is its care: a probe and a hook are machines of their own (see
// there). A container whose postStart hook has not ended is not said to run. A restart rule may bring all containers
// back to (none); ephemeral ones run once.
//
// Guarantees: a life never goes back and a phase never moves back (LIFE-1); a terminal phase is asked for only
// after an observation that nothing of the pod is left (LIFE-10); a stop always gives the whole grace period
// unless a shorter one was asked for (TERM-1, TERM-3, DEL-10), and what is stopped at all is stopped through
// CRI calls that return when the processes are gone (TERM-4); a pod is taken for vanished only after a live
// read said so (DEL-9); a failed action is tried again, with back-off, for as long as it takes, unless the runtime
// calls a sandbox, or a container that never ran, invalid: then the pod fails.
//
// An unclear outcome is not a failure: no container is started while another instance of it may run or may yet start.
// What may run is stopped with its grace before it is removed. What is not confirmed dead when its grace and
// StopMargin are over makes the pod stuck: that is said in an event (FailedKillPod) and in the condition
// monoplane.dev/KillFailed, while the phase stays, and it is tried on.
//
// Times that the runtime or the API stated are tied to the process's own time when they are learned (anchor), so that
// setting the clock afterwards moves neither a back-off nor a deadline.
//
// It does not know CRI or gRPC, admit pods (it asks), or keep anything across a restart: a StateMachine made from a
// fresh observation and the API object goes on where the old one was.
package podstate
