package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// mountPrefix begins the names of the mounts that keep namespaces.
const mountPrefix = "monoplane-"

func (n *Network) mountOf(id string) string { return filepath.Join(n.cfg.NamespaceDir, mountPrefix+id) }

// keep mounts a network namespace, so that it stays until plugins have taken away what is in it, and has one path
// for them as long.
func (n *Network) keep(id, namespace string) (string, error) {
	path := n.mountOf(id)
	err := n.release(id)
	if err == nil {
		err = os.MkdirAll(n.cfg.NamespaceDir, 0o755)
	}
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	}
	if err == nil {
		f.Close()
		if err = unix.Mount(namespace, path, "", unix.MS_BIND, ""); err != nil {
			err = errors.Join(os.NewSyscallError("mount", err), os.Remove(path))
		}
	}
	if err != nil {
		return "", fmt.Errorf("the network namespace of the sandbox %s cannot be kept as %s: %w", id, path, err)
	}
	return path, nil
}

// kept returns the path of a namespace; empty if it is not kept.
func (n *Network) kept(id string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(n.mountOf(id), &st); err != nil || st.Type != unix.NSFS_MAGIC {
		return ""
	}
	return n.mountOf(id)
}

// release lets go of a namespace, if it is kept.
func (n *Network) release(id string) error {
	path := n.mountOf(id)
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// dialInside connects out of a network namespace.
func dialInside(ctx context.Context, namespace, protocol string, address netip.AddrPort) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread()
		conn, restored, err := dialOnThread(ctx, namespace, protocol, address)
		if restored {
			runtime.UnlockOSThread()
		} // Else the thread ends with this: nobody else may run on it.
		done <- outcome{conn, err}
	}()
	o := <-done
	return o.conn, o.err
}

// dialOnThread does so with the calling thread, and tells whether that is back in its own namespace. The address is
// not a name, so that the socket is made on no other thread.
func dialOnThread(
	ctx context.Context, namespace, protocol string, address netip.AddrPort,
) (conn net.Conn, restored bool, err error) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, true, err
	}
	defer own.Close()
	inside, err := os.Open(namespace)
	if err != nil {
		return nil, true, err
	}
	defer inside.Close()
	if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, true, os.NewSyscallError("setns", err)
	}
	conn, err = new(net.Dialer).DialContext(ctx, protocol, address.String())
	return conn, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil, err
}
