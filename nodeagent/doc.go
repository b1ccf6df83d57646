// Package nodeagent runs the pods that are bound to one node. It learns of them from the API, runs them through
// a CRI runtime, and writes their status; it registers the node and keeps its Lease fresh.
//
//	API ── watch ──► pods ──► worker per pod: podstate.StateMachine ──► CRI runtime
//	 ▲                              │     ▲                            │
//	 └──── status, deletion ────────┘     └──── container events ──────┘
//
// Parts: podstate decides, without I/O; criconfig words what CRI is asked for; admission says whether a pod is taken;
// podlog reads and rotates logs; machine describes the machine; this package carries out.
//
// Guarantees:
//   - Before it registers the node or starts anything, the agent reads all pods bound to the node (linearizably) and
//     stops what runs for pods that are not among them; while that read fails, what runs goes on and nothing is
//     started (NODE-2).
//   - Pods that run when the agent starts are adopted: they are neither restarted nor lose exit codes or logs; a
//     termination that was going on begins anew with its whole grace period (DEL-10).
//   - A pod's object is deleted only when the runtime shows nothing of it any more and its terminal phase is
//     written (DEL-7); a pod is taken for deleted by force only after a live read (DEL-9).
//   - Calls that fail are tried again for as long as the agent runs; what the runtime calls invalid before it ever
//     ran, or the system a name too long, fails the pod instead.
//   - One pod holds up no other, nor the node: every call to the runtime and the API has a deadline, and while
//     something of a pod is not confirmed dead the pod and the node say so (condition monoplane.dev/KillFailed), and
//     all else goes on.
//   - The Node does not say Ready while the agent takes more than seconds to find out what runs here.
//
// When Run's context ends the agent lets go: pods go on running, for the next agent to adopt. StopPods empties the
// node first: every pod's processes are stopped with the pod's own grace period, while the objects stay; what cannot
// be confirmed dead is named and given up. On the next start each pod goes on by its restartPolicy: Always restarts,
// OnFailure restarts what had to be stopped with a failure, Never has ended and is Failed or Succeeded by its exit
// codes (design decision 13). That a container was stopped with the node is noted in a file, since neither the runtime
// nor the API tells it: such an end is no failure and leaves the back-off as it was. A stop that has begun goes on
// without its caller, and the node is not Ready any more.
//
// The agent holds no goroutine for a pod to which nothing happens, so that thousands of simulated nodes fit in
// one process.
package nodeagent
