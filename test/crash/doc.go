// Package crash torments the whole server while pods are created and deleted, and checks what must hold whatever
// happens.
//
// The faults: SIGKILL of the server at random points, of a shim, or of a container's process; SIGSTOP of each of
// them, for a moment, for longer than every deadline, or for ever; containers that stop their own shim; a disk that is
// slow or fails; answers between agent and shim that are late, lost, or given twice; an exhausted descriptor table;
// the deletion of everything that the server makes for itself; Ctrl-C and SIGTERM; a copy of the data directory that
// is started beside the original; a clock that is set forth and back, where the environment allows it.
//
// The pods are real processes: this package's test binary itself. Each holds a lock named after its pod's uid and
// container, so that the kernel notices a second instance, whoever has started it, and writes down by the boot clock
// when it began, was told to stop and was last alive. What is checked: no second instance; every acknowledged write is
// there; no phase goes back; no grace is cut short; nobody is stopped without need; no process outlives its pod, or
// its terminal phase; every deletion ends once the faults are over, and then no process is left.
//
// A short run is among the other tests; `make crash` runs hundreds of rounds, or hours. These settings are read from
// the environment:
//
//	MONOPLANE_CRASH_ROUNDS    lives of the server at least (one for each kind of fault)
//	MONOPLANE_CRASH_DURATION  how long it runs at least, such as 1h
//	MONOPLANE_CRASH_SEED      repeats the faults of a run, which prints its seed (not the machine's timing)
//	MONOPLANE_CRASH_KINDS     kinds of faults: a list with commas; names with a minus are left out (all)
//	MONOPLANE_CRASH_CLOCK     "yes" where the machine's clock may be set, as in the one of `make test-vm`
//	MONOPLANE_CRASH_KEEP      file for the journal of a run that failed
//
// Pods of images, each with a network of its own, have runs of theirs, as root and as a user who is not (`make
// crash-network`). Behind a Service they come and go while server, shims, the helpers that hold the node namespace and
// the programs that make containers are killed, stopped and starved. A process of each pod holds a lock on the pod's
// uid and one on each of its addresses. After each restart a pod must be made, and reach all others and the Service;
// in the end processes, mounts, links, rules, control groups, addresses, namespaces and files are counted.
//
// Clusters that come to their end and are not started again on their directory have a run of their own (`make
// leftovers`), on a machine of namespaces, of which all processes, mounts, links and rules are counted.
//
// What needs root or a kernel with FUSE is left out without, which the test says. A process of its own, the guard,
// ends and removes everything that a run has made, however the run ends.
package crash
