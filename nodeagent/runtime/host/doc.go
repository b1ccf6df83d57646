// Package host is a CRI runtime whose only image is named "host": the machine's own filesystem. Its containers are
// real processes in their own sessions, started without any privilege.
//
// # How it works
//
// Every pod sandbox has one shim process (package shim), which is the parent and child subreaper of all processes of
// its pod, writes their logs and keeps their exit codes on disk. The shim outlives the program that runs this package:
// New finds the shims of an earlier life by the lock they hold in their pod's directory, and goes on with them.
//
// The runtime's directory holds:
//
//	lock                         held by the one Runtime that uses the directory
//	pods/ID/                     one sandbox, mode 0700, named before its shim starts
//	pods/ID/sandbox              what RunPodSandbox was asked for, and the boot it belongs to
//	pods/ID/lock                 held by the shim for as long as it lives
//	pods/ID/sock                 the shim's socket
//	pods/ID/shim                 the shim's pid and start time, for when it no longer answers
//	pods/ID/shim.log             what the shim had to say: empty unless something went wrong
//	pods/ID/containers/ID/config what CreateContainer was asked for
//	pods/ID/containers/ID/state  written by the shim alone: start intent, start, exit
//	pods/ID/containers/ID/termination-log
//
// # Guarantees
//
//   - At most one process is ever started for a container ID, whatever crashes, and whenever.
//   - A container is reported exited only when no process of it is left, its logs are written and its exit code is on
//     disk; a sandbox is reported stopped only when no process of the pod is left (TERM-4).
//   - A stop never cuts the grace short that an earlier stop granted, except to an earlier deadline that a later stop
//     asks for (TERM-3). When this program is restarted in the middle, the next stop begins anew, signal and grace
//     (DEL-10); if it never comes back, the granted deadline stands.
//   - Exit codes and logs survive the death of this program; when the shim itself dies, or the machine restarts, what
//     it had not recorded is reported as exit code 137 or 255 with reason ContainerStatusUnknown, never guessed as 0.
//
// # Differences from a container runtime
//
// Pods share the node's network, its filesystem and its users: there are no namespaces. A mount is possible only where
// host path and container path are the same; the one exception is the termination message file, whose path is in the
// container's environment as MONOPLANE_TERMINATION_LOG. Resource limits are enforced as far as writable cgroups reach;
// what cannot be enforced is listed, as a JSON array, under "warnings" in the info of ContainerStatus. Without a
// cgroup2, a process that has both left its parent and changed its marker (see package sys) can be missed only if the
// shim is killed; a process that forks faster than it can be killed delays the end of its container but is never
// reported gone.
//
// Exec, Attach and PortForward are not there yet; ExecSync is.
package host
