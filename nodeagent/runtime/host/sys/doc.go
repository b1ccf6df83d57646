// Package sys is what the shim and the runtime both need to know about Linux processes: who descends from whom, which
// pod a process belongs to, how to signal it without hitting another one, and how to empty a cgroup.
//
// A process tells its pod by its cgroup where there is one, by descent while the shim lives (the shim is a child
// subreaper), and by its marker: the soft limit RLIMIT_RTTIME, which the shim sets to 2^62 microseconds plus a number
// that names the pod. Every child inherits it, neither exec nor setsid nor a cleared environment removes it, everyone
// may read it in /proc, and a limit of 146 000 years limits nothing.
//
// This package imports nothing that depends on package unicode, which leaves out strings, bytes, fmt and reflect: Go
// initialises packages in the order of their import paths as soon as their imports are, so that this is what lets the
// shim branch off before the rest of a large program has been initialised. A test of package host keeps it that way.
package sys
