package shim

import (
	"os"
	"syscall"
)

// CheckArgv0 is the program name under which the program tells whether a process in new namespaces may mount what a
// container needs: it ends with 0, or with 1 and the reason on standard error. With an argument, what it mounts is an
// overlay, with these options, at "merged" of its working directory.
const CheckArgv0 = "monoplane-check"

// HoldArgv0 is the program name under which the program does nothing but to keep the namespaces that it was made in,
// until its standard input ends.
const HoldArgv0 = "monoplane-hold"

// check mounts in a mount namespace of its own. Some security modules let everybody make namespaces, and allow nothing
// in them.
func check() int {
	type mount struct {
		what, source, target, kind string
		flags                      uintptr
		options                    string
	}
	const inMemory = syscall.MS_NOSUID | syscall.MS_NODEV
	mounts := []mount{
		{"mounts cannot be made private", "none", "/", "", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"/proc cannot be mounted", "proc", "/proc", "proc", inMemory | syscall.MS_NOEXEC, ""},
		{"a file system in memory cannot be mounted", "tmpfs", "/proc", "tmpfs", inMemory, ""},
	}
	if len(os.Args) > 1 {
		mounts = append(mounts[:1], mount{"an overlay cannot be mounted", "overlay", "merged", "overlay", 0, os.Args[1]})
	}
	for _, m := range mounts {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
			_, _ = os.Stderr.WriteString(m.what + ": " + err.Error())
			return 1
		}
	}
	return 0
}

// hold waits for the end of standard input.
func hold() int {
	var b [1]byte
	for {
		if n, err := syscall.Read(0, b[:]); err != syscall.EINTR && n <= 0 {
			return 0
		}
	}
}
