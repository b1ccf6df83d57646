// Package shim is the process that keeps one pod alive: parent and child subreaper of all its processes, the only one
// that signals them, writer of their logs and of their exit codes. It is the program that imports this package,
// executed again under the name Argv0; init branches off before anything else of the program is initialised.
//
// Guarantees:
//
//   - A container ID is started at most once: the intent is in its journal before the fork.
//   - A container is Exited only when process 1 is reaped, nothing that descends from it is left, its output is in the
//     log, and its journal is on the disk. Until then Stop does not return.
//   - When process 1 ends, the rest of its container is killed at once, as in a pid namespace.
//   - No signal hits a stranger: process 1 and its group are signalled only while process 1 is unreaped, so that its
//     pid cannot be another's; descendants through a pidfd whose start time was compared.
//   - When the shim itself is killed, the kernel kills every process 1 (parent-death signal).
//
// The shim does not know pods, restarts or policies, and holds no clock but the deadlines of stops. Everything that it
// knows is in its memory and, for the time after its own death, in the journals; the runtime is the only other reader.
//
// Signals that are meant for the program (SIGINT, SIGTERM, SIGHUP) do nothing to a shim: it ends when it is told to
// through its socket, when the runtime that started it died before saying what for, or when its directory was removed
// and nobody is connected: with the pod then, as nobody can come any more.
//
// Package sys says why this package and what it imports keep away from fmt, strings, net and the like.
package shim
