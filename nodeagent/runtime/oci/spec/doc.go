// Package spec says in the words of the OCI runtime specification what a pod asks for in those of CRI: it turns the
// configuration of a sandbox and of a container, and what the container's image says, into a Bundle, which the helper
// (cmd/ocihelper) makes a container of.
//
// It only calculates: it reads no file but the seccomp profiles and devices that a configuration names, and changes
// nothing. What depends on the content of the image, such as the id of a user that has a name, is left to the helper,
// which sees the root of the container.
//
// Where the pod is silent a container gets what containerd gives it: its default capabilities, mounts, masked paths
// as CRI says them, private namespaces of processes, and no seccomp profile unless one is asked for. Network, IPC and
// host name are the sandbox's, which its shim holds.
package spec
