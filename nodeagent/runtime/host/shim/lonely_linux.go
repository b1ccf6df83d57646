package shim

import (
	"os"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// lonelyTime is the time between two looks of a shim that nobody is connected to at whether anybody can come.
const lonelyTime = 2 * time.Second

// watch ends the pod, and the shim, when no runtime can ever ask for it again. It runs while none is connected.
func (p *pod) watch() {
	for {
		time.Sleep(lonelyTime)
		isLost := isLost()
		p.mu.Lock()
		isLonely := len(p.conns) == 0
		p.watching = isLonely
		p.mu.Unlock()
		if !isLonely {
			return
		}
		if isLost {
			p.shutdown()
			os.Exit(0)
		}
	}
}

// isLost tells whether the directory of the pod was removed, and with it the socket by which alone runtimes find the
// shim. The kernel says it of the very directory that the shim is in: a file system that was unmounted, or does not
// answer, and a directory that was moved do not count. Some file systems do not count links, and some forget the path
// of a directory that is there, so that both have to say it. Where something has its path again, it may be a backup of
// it, and whose the pod is then is up to the operator.
func isLost() bool {
	const deleted = " (deleted)"
	var now syscall.Stat_t
	if err := syscall.Stat(".", &now); err != nil || now.Nlink != 0 {
		return false
	}
	path, err := os.Readlink("/proc/self/cwd")
	if end := len(path) - len(deleted); err != nil || end < 0 || path[end:] != deleted {
		return false
	}
	_, err = os.Lstat(path[:len(path)-len(deleted)])
	return err != nil && sys.Gone(err)
}
