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
//	pods/ID/sandbox              what RunPodSandbox was asked for, the boot it belongs to, and where it lies
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
//   - A start has an expiry, the deadline of its call, by a clock that nobody sets. A shim that comes to it later
//     refuses it for good: the container is Exited, code 128, reason StartError, in its journal and by event, even if
//     the caller has gone. The shim looks at the clock last before it forks; if it is paused right there, the process
//     starts late. So nobody but the shim may say that a start has expired: after DeadlineExceeded, Canceled or
//     Unavailable the outcome is unknown, and becomes known by ContainerStatus (Running or Exited), by an event, or by
//     a RemoveContainer that has succeeded, after which it is never started (SAFE-4). "Starting" in a journal means
//     that it may run, and is reported as Running.
//   - RunPodSandbox leaves no shim that it does not know of: one that is late is killed, and one that cannot be killed
//     keeps its sandbox.
//   - A container is reported exited only when no process of it is left, its logs are written and its exit code is on
//     disk; a sandbox is reported stopped only when no process of the pod is left (TERM-4).
//   - A stop never cuts the grace short that an earlier stop granted, except to an earlier deadline that a later stop
//     asks for (TERM-3). When this program is restarted in the middle, the next stop begins anew, signal and grace
//     (DEL-10); if it never comes back, the granted deadline stands.
//   - Stops and removals return StopMargin after their grace at the latest. A shim that was stopped (SIGSTOP) is let
//     go on within seconds. One that does not answer is ended by the runtime, after the grace of the container that is
//     to be stopped, which gets its stop signal from the runtime then, as do the other containers of the pod. What
//     cannot be confirmed dead is named by the error and in the info of PodSandboxStatus, its sandbox is NOTREADY, and
//     the runtime goes on trying, without holding up other pods, New or Close (SAFE-6). Lists and statuses never wait.
//   - A pod's uid has one sandbox on the machine, whichever directory it is in: a file that the shim holds locked
//     claims it, and what a killed shim has left counts too. RunPodSandbox fails with FailedPrecondition and names the
//     processes and the directory (SAFE-5).
//   - A copy of a directory is told from the original by its inodes. Its sandboxes are NOTREADY, their containers
//     exited; no process, cgroup or record is touched for them, and to remove them removes the copy's own files. A
//     directory that is moved within its filesystem is the same one. After a backup was restored in the place of the
//     original while that was in use, what it had started runs on, and its pods are refused until an operator has
//     ended the processes that the error names.
//   - A process that is stopped gets SIGCONT after its stop signal, as systemd does it, so that it can use its grace.
//   - Exit codes and logs survive the death of this program; when the shim itself dies, or the machine restarts, what
//     it had not recorded is reported as exit code 137 or 255 with reason ContainerStatusUnknown, never guessed as 0.
//
// # Differences from a container runtime
//
// Pods share the node's network, its filesystem and its users: there are no namespaces. A mount is possible only where
// host path and container path are the same; the one exception is the termination message file, whose path is in the
// container's environment as MONOPLANE_TERMINATION_LOG. The runtime makes no file at the termination message path
// itself; a process of root that writes to /dev/termination-log makes one in the node's own /dev, and nobody reads it.
// Neither has a pod a host name of its own: HOSTNAME in the environment is all of it. Resource limits are enforced as
// far as writable cgroups reach. What a pod asks for explicitly and does not get is listed, as a JSON array, under
// "warnings" in the info of ContainerStatus. Without a cgroup2, a process that has both left its parent and changed
// its marker (see package sys) can be missed only if the shim is killed; a process that forks faster than it can be
// killed delays the end of its container but is never reported gone.
//
// Exec, Attach and PortForward are not there yet; ExecSync is.
package host
