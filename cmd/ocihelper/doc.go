// Command ocihelper makes containers with libcontainer, on behalf of the shim of a pod. It is the one part of
// Monoplane that needs cgo: libcontainer sets up namespaces in C, before Go's runtime has threads, and compiles
// seccomp profiles with libseccomp. It is linked statically, embedded in the monoplane binary (package
// nodeagent/runtime/oci/helper), and run by shims from a sealed file in memory.
//
//	ocihelper create BUNDLE ID          makes the container that BUNDLE/bundle.json describes, up to its last step
//	ocihelper exec BUNDLE ID -- ARGS    runs one more process in it
//	ocihelper checkpoint BUNDLE ID -- DIRECTORY CRIU
//	                                    writes a checkpoint of it into a directory, by the program CRIU
//	ocihelper hold SETTING=VALUE…       makes the namespaces ready that it was started in, and holds them
//	ocihelper pause SETTING=VALUE…      does too, as the process 1 of a pod whose containers share their processes
//	ocihelper check                     tells whether libcontainer can make containers here
//	ocihelper enter                     enters user namespaces (see enter.go)
//	ocihelper remove DIRECTORY          removes what users of containers have left there
//
// Each lives for milliseconds, or as long as CRIU takes for a checkpoint, and waits for nothing but that, the kernel
// and its shim: the new process becomes the shim's child when the helper ends, so that nothing of libcontainer stays
// in memory beside a pod.
//
// Descriptors: 0 to 2 are those of the new process. 3 is a socket to the shim, which gets "+PID\n" once the process
// is made, "+0\n" once the checkpoint is, or "-" and an error in words; the helper ends when the shim closes its end,
// and until then the process, even if it is dead, keeps its PID. 4, with --console, is a socket that gets the terminal
// of the process, which has the size that --width=N and --height=N say. 5, with --shm, is the mount namespace in which
// the pod's shared memory is mounted.
package main
