package shim

import "os"

// Argv0 is the program name under which the program becomes a shim.
const Argv0 = "monoplane-shim"

// Descriptors that a new shim inherits, besides standard input, output and error.
const (
	ConnFD = 3 // One end of a socket pair: the first connection, on which Init must arrive.
	// ClaimFD is the pod's claim on this machine, a locked file; /dev/null where pods cannot be claimed. The kernel
	// closes descriptors in their order, so that the claim of a dead shim is free as soon as its lock is.
	ClaimFD = 4
	LockFD  = 5 // The pod's lock file, already locked. The lock lasts as long as the shim.
	// HelperFD is the program that makes containers from bundles, a sealed file in memory that all shims of one start of
	// the server share; /dev/null where there is none.
	HelperFD = 6
)

// init is the one exception to the rule against init functions: running here, before the packages of the program
// that the shim has no use for are initialised, costs a pod 1 MB and 3 ms instead of several times that.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Argv0 {
		os.Exit(run())
	}
	if len(os.Args) > 0 && os.Args[0] == CheckArgv0 {
		os.Exit(check())
	}
	if len(os.Args) > 0 && os.Args[0] == HoldArgv0 {
		os.Exit(hold())
	}
	if len(os.Args) > 0 && os.Args[0] == SetupArgv0 {
		os.Exit(setUp())
	}
}
