package helper

import (
	"os"
	"runtime"
)

// Argv0 is the program name under which the program becomes the helper.
const Argv0 = "monoplane-node"

// Files that a helper inherits, besides standard input, output and error.
const (
	ListenFD = 3 // The socket on which it is called, bound.
	DirFD    = 4 // The directory of that socket.
	ReadyFD  = 5 // Where the first helper says that it works; a later one has none.
	// LockFD is the lock under which the first helper is started. It has it until it listens, also when who has started
	// it is no more, so that nobody starts another meanwhile.
	LockFD = 6
	// BeginFD says by a byte that the first helper may begin: its ids are there. When it ends without, so does the
	// helper.
	BeginFD = 7
)

// First is set in the environment of the first helper of a namespace, which has ReadyFD.
const First = "MONOPLANE_FIRST_HELPER"

// Socket is the name of the helper's socket in its directory.
const Socket = "node.sock"

// init branches off before the program's own main, as a shim does. It keeps the main thread in the node namespace:
// goroutines that enter others do so on other threads, and what /proc says of the process is what it says of the main
// thread.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Argv0 {
		runtime.LockOSThread()
		name(Argv0)
		os.Exit(run())
	}
	if len(os.Args) > 0 && os.Args[0] == SpareArgv0 {
		name(SpareArgv0)
		os.Exit(spare())
	}
}

// name gives the process its name: the kernel's is that of the path by which it was started, such as "exe".
func name(argv0 string) {
	// What cannot be named works all the same.
	_ = os.WriteFile("/proc/self/comm", []byte(argv0), 0)
}
