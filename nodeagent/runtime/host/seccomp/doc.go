// Package seccomp compiles seccomp profiles to the classic BPF programs that the kernel takes: the runtime's own
// default, and profiles in the JSON format of the OCI runtime specification.
//
// A compiled program answers calls by another numbering than the machine's own (32-bit programs on a 64-bit machine)
// with EPERM, because a profile says nothing about them. Names of system calls that this machine does not have are
// ignored, as by other runtimes; everything else in a profile that cannot be done is an error that names it.
//
// The package has no state and makes no system call. Compile and Default are pure: the same profile gives the same
// program.
package seccomp
