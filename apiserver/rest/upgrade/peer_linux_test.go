package upgrade

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inOwnNetwork names the variable of the process that has a network of its own.
const inOwnNetwork = "MONOPLANE_TEST_OWN_NETWORK"

// A client whose machine is no longer there, without a word, is found out; one that merely reads nothing is not. The
// test runs in a network namespace of its own, whose one link it takes down.
//
// spec: CTR-9
func TestPeerGone(t *testing.T) {
	if os.Getenv(inOwnNetwork) != "" {
		peerGone(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeerGone$", "-test.v")
	cmd.Env = append(os.Environ(), inOwnNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("this machine gives nobody a network namespace of their own:", err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func peerGone(t *testing.T) {
	setLink(t, true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var near, far [2]net.Conn
	for i := range near {
		if far[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if near[i], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	// The first has been written to until it took nothing more, the second has taken everything.
	_ = near[0].SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err = nil; err == nil; {
		_, err = near[0].Write(make([]byte, 1<<20))
	}
	if _, err := near[1].Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(far[1], make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for i, c := range near {
		if silent := peerSilent(rawOf(c)); silent > time.Minute {
			t.Errorf("%d is silent for %s", i, silent)
		}
	}
	setLink(t, false)
	var causes [2]error
	for i, c := range near {
		_, _ = c.Write([]byte("x")) // A ping, or what a command says.
		ctx, cancel := context.WithCancelCause(t.Context())
		defer watchPeer(c, 500*time.Millisecond, cancel)()
		<-ctx.Done()
		causes[i] = context.Cause(ctx)
	}
	for i, err := range causes {
		if !errors.Is(err, errGone) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// setLink takes the link of the namespace up or down.
func setLink(t *testing.T, up bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	request := struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{name: [unix.IFNAMSIZ]byte{'l', 'o'}}
	if up {
		request.flags = unix.IFF_UP
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		t.Fatal(errno)
	}
}

// A machine that acknowledges nothing counts only when it has something to acknowledge.
func TestPeerWithoutKernel(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	watchPeer(near, time.Nanosecond, cancel)()
	near.Close()
	if rawOf(near) != nil || ctx.Err() != nil {
		t.Error("a connection inside the process has no kernel")
	}
	cancel(nil)
}
