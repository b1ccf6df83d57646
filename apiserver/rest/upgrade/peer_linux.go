package upgrade

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unanswered is how many questions whether there is room for more may be without an answer. The first are not: there
// may be none for a while.
const unanswered = 3

// peerSilent returns how long the other end has acknowledged nothing, zero when it has nothing to acknowledge.
func peerSilent(raw syscall.RawConn) time.Duration {
	var info *unix.TCPInfo
	err := raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = i
		}
	})
	if err != nil || info == nil || info.Unacked == 0 && info.Probes < unanswered {
		return 0
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond
}
