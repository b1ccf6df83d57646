// Package host is a CRI runtime with an image named "host": the machine's own filesystem; with Config.OCI it runs
// other images too, see below. Its containers are real processes in their own sessions. It needs no privilege: what
// it does with those that it has, and without them, is said below.
//
// # How it works
//
// Every pod sandbox has one shim process (package shim), which is the parent and child subreaper of all processes of
// its pod, writes their logs and keeps their exit codes on disk. The shim outlives the program that runs this
// package: New finds the shims of an earlier life by the lock they hold in their pod's directory, and goes on with
// them.
//
// The runtime's directory holds:
//
//	lock                         held by the one Runtime that uses the directory
//	pods/ID/                     one sandbox, mode 0700, named before its shim starts
//	pods/ID/sandbox              what RunPodSandbox was asked for, the boot it belongs to, and where it lies
//	pods/ID/hostname             /etc/hostname of its containers, if it has a name of its own
//	pods/ID/resolv.conf          /etc/resolv.conf of its containers, if it was given a DNS configuration
//	pods/ID/lock                 held by the shim for as long as it lives
//	pods/ID/sock                 the shim's socket
//	pods/ID/shim                 the shim's pid and start time, for when it no longer answers
//	pods/ID/shim.log             what the shim had to say: empty unless something went wrong
//	pods/ID/containers/ID/config what CreateContainer was asked for
//	pods/ID/containers/ID/state  written by the shim alone: start intent, start, exit
//	pods/ID/containers/ID/resources
//	                             what UpdateContainerResources has set, if anything
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
//   - Pods of a directory that was removed after its runtime was killed end: the shims that live notice it, within
//     seconds, and what dead ones have left (processes, cgroups, mounts, claims) the next runtime of the user ends, on
//     whatever directory, by the claims that nobody holds. Nothing of a directory that is there is touched.
//   - A process that is stopped gets SIGCONT after its stop signal, as systemd does it, so that it can use its grace,
//     and one whose cgroup2 is frozen is thawed. What is to be killed is taken out of a frozen group of cgroup v1, in
//     which it could not die.
//   - Exit codes and logs survive the death of this program; when the shim itself dies, or the machine restarts, what
//     it had not recorded is reported as exit code 137 or 255 with reason ContainerStatusUnknown, never guessed as 0.
//
// # What a container sees
//
// The machine's root, over which lie the pod's own things, in a mount namespace of the container (package view): its
// mounts at their container_path, /etc/hostname and /etc/resolv.conf where the sandbox has a host name or a DNS
// configuration of its own, and what the agent mounts at /etc/hosts and at the termination message path. The pod has
// a UTS namespace with its host name. Network, processes and users are the machine's, so that the processes of a pod
// see each other. What is run by ExecSync sees what its container sees.
//
// A path that the machine lacks appears in the container only: see package view. A directory of the machine in which
// that happens, /dev for /dev/termination-log, shows the entries that it had when the container started.
//
// Root makes these namespaces directly. Without root each shim lives in a user namespace that has this one user, in
// which it may mount. In it the files of other users seem to belong to nobody, and programs with the set-user-ID bit,
// such as sudo, gain nothing. Where neither is allowed, containers run without what they did not ask for themselves,
// the host name, the files in /etc, the termination message and the masks over /proc and /sys, which the first of a
// pod says in its warnings. One that has any other mount, or a read-only root, fails to start, with a message that
// names the remedy.
//
// A container whose mounts are where they are on the machine anyway, and that needs nothing else of this, is started
// by a fork alone. Any other is started by way of a process that sets it up and then becomes its process 1.
//
// # Users and privileges
//
// A container that asks for nothing has what this process has: as root all of its capabilities, without root none. To
// drop capabilities takes them away for good, from what it executes too; to drop ALL and add some leaves those. What
// this process lacks cannot be added. no_new_privs, read-only root and seccomp work with and without root. The
// default seccomp profile refuses what administers the machine (package seccomp), a Localhost profile is a file in
// OCI's format; both let only calls of the machine's own word size through. An AppArmor profile must be loaded; the
// default one is loaded by root where there is AppArmor, else it is what the machine's rules say. Containers of
// images have it unless they say otherwise, those of image "host" when they ask. Refused by name are: users and
// groups that need root, capabilities beyond this process's, sysctls, devices for reading only, users of its own
// (hostUsers: false), and mounts of images. The masked paths of CRI, for the kernel's files that containers have no
// business with, are empty in the container's view, and the read-only ones cannot be written to there, with and
// without root; a privileged container has neither.
//
// # What neighbours are promised
//
// A container inherits no descriptor, no environment and no signal setting of this process or of its shim, only
// PATH, HOSTNAME, MONOPLANE_SANDBOX_ID, MONOPLANE_CONTAINER_ID, MONOPLANE_TERMINATION_LOG and
// MONOPLANE_SERVICE_ACCOUNT beside its own variables. The directory of the runtime has mode 0700. Processes of the
// same user can signal each other, trace each other if they have the same privileges, and read each other's files, as
// anywhere: to keep pods apart from the agent and from each other, run them as different users. A container that
// stops, traces or kills its shim ends with its pod.
//
// # Differences from a container runtime
//
// Pods share the node's network, its processes and its users. Standard input, if asked for, stays open and silent
// until somebody attaches; so does a terminal, whose output is logged as stdout. The file of the termination
// message is named by MONOPLANE_TERMINATION_LOG in the environment too, the directory with the token of the pod's
// service account by MONOPLANE_SERVICE_ACCOUNT: where no view can be made that is the way to it. Resource limits are
// enforced as far as writable cgroups reach. What a pod asks for explicitly and does not get is listed, as a JSON
// array, under "warnings" in the info of ContainerStatus. What a pod may use as a whole is set by
// UpdatePodSandboxResources (limits_pods in the info of Status says so), and is the agent's to ask for. Without a
// cgroup2, a process that has both left its parent and changed its marker (see package sys) can be missed only if the
// shim is killed; a process that forks faster than it can be killed delays the end of its container but is never
// reported gone.
//
// An image_sub_path beside a host_path is a path below that, as it is beside an image (opens_sub_paths in the info of
// Status says so). It is opened when the container starts, and no link leads it out of the host_path, even if that is
// a volume that containers change meanwhile. An agent without root needs this, because it cannot mount such a path
// itself.
//
// A missing host_path is made, as a directory, as other runtimes do.
//
// A shim of an older version goes on under a newer runtime. A container that it cannot give what it needs is refused.
//
// # Images
//
// With Config.OCI a container of another image gets what containers get elsewhere: the image's files with a layer of
// its own above them, namespaces of mounts and processes, and those of its sandbox for IPC, host name and network;
// the usual capabilities, devices and masked paths (package oci/spec). Its shim has a helper make it (see
// shim/bundle_linux.go and cmd/ocihelper), so that all that is guaranteed above holds for it, with one difference:
// if its shim is killed, the kernel does not kill its process 1; the runtime does, at once if it runs, else when it
// is started.
//
// The sandbox has a directory for each such container, and the store of images another one:
//
//	pods/ID/addresses                        the addresses of the sandbox, if it has a network of its own
//	pods/ID/shm                              where its /dev/shm is mounted, in a mount namespace that the shim holds
//	pods/ID/containers/ID/bundle/bundle.json what the helper is told
//	pods/ID/containers/ID/bundle/process.json
//	                                         the process with the ids of its user, for those that are executed later
//	pods/ID/containers/ID/bundle/state       libcontainer's own records
//	pods/ID/containers/ID/bundle/rootfs      where the root is mounted, in the container's mount namespace
//	pods/ID/containers/ID/checkpoint         what a checkpoint is put together of, while it is made
//
// Nothing is mounted in the machine's own mount namespace, so that nothing is left mounted, whatever is killed.
// As root, the pods' cgroups are below /monoplane in every hierarchy unless Config.CgroupParent says otherwise.
//
// # Streams
//
// ExecStream, AttachStream and Forward are what CRI's Exec, Attach and PortForward are for, without the server that
// those would name. A command is killed, with all that descends from it, when its caller goes away, also when that is
// this program, killed. What somebody who has attached leaves unread holds up the container for ten seconds; then the
// attachment ends, and the container goes on. A forwarded port is one of the machine's loopback addresses.
package host
