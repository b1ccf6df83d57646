package crash

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// envShare makes a process a peer: the directory that it shares with the test.
const envShare = "CRASH_SHARE"

// peerPort is where peers serve.
const peerPort = 8080

// violations is the file in which peers write down what must not be.
const violations = "violations"

// peer is what a container of a pod with a network of its own runs. It says its pod's uid to whoever connects. As long
// as it lives it holds a lock on that uid and one on each address of the pod, so that the kernel notices a second
// instance, and a second pod with one of the addresses.
func peer(share, uid string) int {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	names := []string{"pod-" + uid}
	// A pod has none while the node namespace is made anew.
	for len(names) == 1 {
		addresses, err := net.InterfaceAddrs()
		if err != nil {
			return violate(share, "pod %s does not know its addresses: %v", uid, err)
		}
		for _, a := range addresses {
			if ip := a.(*net.IPNet).IP; ip.IsGlobalUnicast() {
				names = append(names, "address-"+ip.String())
			}
		}
		select {
		case <-terms:
			return 0
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(share, "lock-"+name), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return violate(share, "pod %s: %v", uid, err)
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			other := make([]byte, 64)
			n, _ := f.Read(other)
			return violate(share, "pod %s cannot have %s, which a process of pod %s has: %v", uid, name, other[:n], err)
		}
		_, err = f.WriteAt([]byte(uid), 0)
		if err != nil {
			return violate(share, "pod %s: %v", uid, err)
		}
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", peerPort))
	if err != nil {
		return violate(share, "pod %s cannot serve: %v", uid, err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				continue
			}
			_, _ = conn.Write([]byte(uid)) // the client may be gone
			_ = conn.Close()
		}
	}()
	<-terms
	return 0
}

// violate writes down what must not be, and returns the exit code of a process that saw it.
func violate(share, format string, args ...any) int {
	f, err := os.OpenFile(filepath.Join(share, violations), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err == nil {
		_, err = fmt.Fprintf(f, format+"\n", args...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 3
}
