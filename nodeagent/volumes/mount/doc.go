// Package mount mounts and unmounts, and removes directories that may have something mounted in them, without ever
// reaching into what is mounted there. It speaks to the kernel itself: no program is needed.
//
// Mounting takes the capability CAP_SYS_ADMIN; without it, and on systems other than Linux, the errors say so.
package mount

import "errors"

// ErrNotPermitted means that this process may not mount.
var ErrNotPermitted = errors.New("the agent may not mount file systems: run it as root, or with CAP_SYS_ADMIN")
