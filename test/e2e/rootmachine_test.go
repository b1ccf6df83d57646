//go:build rootonly

package e2e_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/test/containerd"
)

// machine is a network namespace in which a cluster is started, as if it were a machine of its own: what the cluster
// does to the machine's network it does to this one.
type machine struct {
	name string
	uid  int // Who starts the cluster; 0 for root.
	// delegated says that the user's systemd gives the cluster a scope with cgroups of its own.
	delegated bool
	// ids is a file that stands for /etc/subuid and /etc/subgid, resolv one for /etc/resolv.conf; empty for the
	// machine's.
	ids, resolv string
}

// newMachine makes a network namespace with nothing but a loopback.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{name: fmt.Sprintf("mp-e2e-%d-%d", os.Getpid(), namespaces.Add(1))}
	m.ip(t, "netns", "add", m.name)
	t.Cleanup(func() { m.ip(t, "netns", "del", m.name) })
	m.run(t, "ip", "link", "set", "lo", "up")
	return m
}

func (m *machine) ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// run runs a command on the machine and returns what it prints.
func (m *machine) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/" + m.name}, args...)...)
	var stderr strings.Builder // where ip complains of what others have left in /run/netns
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// program returns a program that runs another one on the machine.
func (m *machine) program(t *testing.T, path string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), filepath.Base(path))
	as := ""
	if m.uid != 0 {
		as = fmt.Sprintf("setpriv --reuid=%d --regid=%[1]d --clear-groups ", m.uid)
	}
	if m.delegated { // What is said here is where PAM gives a user's sessions the same.
		as += fmt.Sprintf("env XDG_RUNTIME_DIR=/run/user/%d DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/%[1]d/bus "+
			"systemd-run --user --scope --quiet -p Delegate=yes ", m.uid)
	}
	var mounts string
	if m.ids != "" {
		mounts = fmt.Sprintf("mount --bind %s /etc/subuid && mount --bind %[1]s /etc/subgid && ", m.ids)
	}
	if m.resolv != "" {
		mounts += fmt.Sprintf("mount --bind %s /etc/resolv.conf && ", m.resolv)
	}
	if mounts != "" {
		as = fmt.Sprintf("unshare -m sh -c '%sexec \"$@\"' sh %s", mounts, as)
	}
	text := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=/run/netns/%s %s%s \"$@\"\n", m.name, as, path)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// network is the file of the machine's network namespace.
func (m *machine) network() string { return "/run/netns/" + m.name }

// insideOf does something on a thread in the machine's network.
func insideOf[T any](m *machine, do func() (T, error)) (done T, err error) {
	return inNetwork(m.network(), do)
}

// inNetwork does something on a thread in a network namespace, by its file. Connections that are made there stay
// there.
func inNetwork[T any](file string, do func() (T, error)) (done T, err error) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // The thread ends with the goroutine, and is nobody else's.
		var ns *os.File
		if ns, err = os.Open(file); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			done, err = do()
		}
	}()
	<-over
	return done, err
}

// asked connects to an address of a network namespace, and returns what is said there until the connection is ended.
func asked(network, address string) (string, error) {
	return inNetwork(network, func() (string, error) { return ask(address, 20*time.Second) })
}

// ask connects to an address, says nothing, and returns what is said until the connection is ended. It may take so
// long to connect, and again to be answered.
func ask(address string, within time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", address, within)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// rootAndUser runs a test on a machine of root's and, beside it, on one of a user who is not.
func rootAndUser(t *testing.T, test func(t *testing.T, m *machine)) {
	for name, uid := range map[string]int{"root": 0, "user": unprivileged} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.uid = uid
			test(t, m)
		})
	}
}

// mine gives a file, or a directory that is made where it is missing, to a user.
func mine(t *testing.T, uid int, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil && !os.IsExist(err) && !strings.Contains(err.Error(), "not a dir") {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
	return path
}

// outside connects a machine with another one, where a server says "outside" on port 9000, and returns that one.
func (m *machine) outside(t *testing.T) *machine {
	t.Helper()
	far := newMachine(t)
	m.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", far.name)
	m.run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "up0")
	m.run(t, "ip", "link", "set", "up0", "up")
	far.run(t, "ip", "addr", "add", "192.0.2.2/24", "dev", "up0")
	far.run(t, "ip", "link", "set", "up0", "up")
	m.run(t, "ip", "route", "add", "default", "via", "192.0.2.2")
	l, err := insideOf(far, func() (net.Listener, error) { return net.Listen("tcp", ":9000") })
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "outside\n")
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // What is not read would take back what has been written.
	})
	return far
}

// serve has each connection answered until the test ends.
func serve(t *testing.T, l net.Listener, answer func(net.Conn)) {
	t.Helper()
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	})
}

// imageCluster is a cluster on a machine, of its user, that runs images without a container engine.
type imageCluster struct {
	machine           *machine
	monoplane         string // What runs the program as that user.
	home, dir, images string
	// flags are what begin says besides.
	flags []string
	// now is the server that was started last.
	now *cluster
}

// imageCluster loads the images of the tests as the machine's user. What is begun is ended with the test.
func (m *machine) imageCluster(t *testing.T) *imageCluster {
	t.Helper()
	home := mine(t, m.uid, filepath.Dir(shortDir(t)))
	u := &imageCluster{machine: m, home: home, dir: filepath.Join(home, "data"), images: filepath.Join(home, "images")}
	archive := filepath.Join(home, "images.tar")
	if err := containerd.WriteImages(archive); err != nil {
		t.Fatal(err)
	}
	mine(t, m.uid, archive)
	program := binary(t, "monoplane")
	if m.uid != 0 { // What a user is to run has to lie where that user gets to.
		text, err := os.ReadFile(program)
		program = filepath.Join(home, "monoplane")
		if err == nil {
			err = os.WriteFile(program, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	u.monoplane = m.program(t, program)
	load := exec.Command(u.monoplane, "image", "load", archive, "--image-dir", u.images)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("image load: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if u.now == nil {
			return
		}
		if t.Failed() {
			t.Logf("stderr of the cluster ends with:\n%s", u.now.stderr.tail(40))
		}
		if u.now.proc.Signal(syscall.SIGINT) == nil { // stops the pods
			u.now.waitExit(t)
		}
		if err := u.now.left(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// begin starts the server.
func (u *imageCluster) begin(t *testing.T) *cluster {
	t.Helper()
	c, err := u.start()
	if err != nil {
		t.Fatal(err)
	}
	u.now = c
	return c
}

// start starts a server that the caller ends.
func (u *imageCluster) start() (*cluster, error) {
	return start(u.monoplane, u.dir, append([]string{"--runtime", "oci", "--image-dir", u.images}, u.flags...)...)
}

// podNetwork is the file of a pod's network namespace, as long as it runs.
func (u *imageCluster) podNetwork(t *testing.T, pod string) string { return podNetwork(t, u.dir, pod) }

// apply applies manifests in the namespace default.
func (u *imageCluster) apply(t *testing.T, manifests string) {
	t.Helper()
	if out, code := u.kubectl(t).run(t, manifests, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
}

// kubectl runs on the machine, as root.
func (u *imageCluster) kubectl(t *testing.T) *kubectl {
	t.Helper()
	k := u.now.kubectl(t, "default")
	k.on(t, u.machine)
	return k
}

// on has commands run on a machine, as root.
func (k *kubectl) on(t *testing.T, m *machine) {
	t.Helper()
	k.path, k.dial = (&machine{name: m.name}).program(t, k.path), m.connect
}

// down ends the cluster as a user does.
func (u *imageCluster) down(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(u.monoplane, "down", "--data-dir", u.dir).CombinedOutput(); err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	u.now.waitExit(t)
}
