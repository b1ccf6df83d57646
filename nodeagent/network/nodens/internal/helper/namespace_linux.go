package helper

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// namespace opens a namespace, or makes one for a pod, with lo up.
func namespace(kind string) (*os.File, error) {
	switch kind {
	case wire.Node:
		return os.Open("/proc/self/ns/net")
	case wire.User:
		return os.Open("/proc/self/ns/user")
	case wire.Pod:
		var made *os.File
		err := aside(func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("no network namespace can be made: %w", err)
			}
			if err := loopbackUp(); err != nil {
				return err
			}
			made, err = os.Open("/proc/thread-self/ns/net")
			return err
		})
		return made, err
	default:
		return nil, fmt.Errorf("there is no namespace of the kind %q", kind)
	}
}

// inside calls f in a network namespace.
func inside(ns *os.File, f func(*netlink.Handle) error) error {
	return aside(func() error {
		if err := enter(ns); err != nil {
			return err
		}
		h, err := handle()
		if err != nil {
			return err
		}
		defer h.Close()
		return f(h)
	})
}

// enter moves this thread to a pod's network namespace.
func enter(ns *os.File) error {
	err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the pod's network namespace does not belong to the user namespace of the node, or is of one "+
			"that is no more; the pod has to be made again: %w", err)
	}
	if err != nil {
		return fmt.Errorf("the pod's network namespace cannot be entered: %w", err)
	}
	return nil
}

// aside calls f on a thread that nothing else will ever use.
func aside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine.
		done <- f()
	}()
	return <-done
}

// handle speaks to the kernel about the network namespace of this thread.
func handle() (*netlink.Handle, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("no netlink socket: %w", err)
	}
	return h, nil
}

func loopbackUp() error {
	h, err := handle()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	return h.LinkSetUp(lo)
}
