//go:build rootonly

package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestRootConnectionsLiveOn kills the server while connections of a pod are in use, and starts it again: those to
// another pod and to a Service go on all the time, and where the kernel forwards them so do one to another machine,
// and those from there, and from the machine itself, to a node port, a host port and the port of a load balancer, of
// which there are new ones meanwhile. Without root, these end with the process that they go through, and can be had
// again afterwards. A pod's connections to a node port and to a host port, of another pod and of its own, go on in
// either case, and there are new ones meanwhile. The other machine sees the address of the pods'.
//
// spec: NET-1, WORK-4, SAFE-4
func TestRootConnectionsLiveOn(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		far := m.outside(t)
		m.run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
		u := m.imageCluster(t)
		u.begin(t)
		k := u.kubectl(t)
		u.apply(t, talkManifest)
		k.ok(t, "wait --for=condition=Ready pod/echo pod/client --timeout=2m")
		client := u.podNetwork(t, "client")
		begin := func(address string) *talk { return newTalk(t, client, address) }
		pod := begin(k.ok(t, "get pod echo -o jsonpath={.status.podIP}") + ":8080")
		service := begin(k.ok(t, "get service echo -o jsonpath={.spec.clusterIP}") + ":8085")
		elsewhere, from := far.echo(t)
		outside := begin(elsewhere)
		forwarded := m.uid == 0
		k.until(t, "get service echo", `(?m)^echo +LoadBalancer +\S+ +192\.0\.2\.1 `)
		nodePort := k.ok(t, "get service echo -o jsonpath={.spec.ports[0].nodePort}")
		var inside, own []*talk
		for _, port := range []string{nodePort, "8088", "8085"} {
			inside = append(inside, newTalk(t, far.network(), "192.0.2.1:"+port))
			own = append(own, newTalk(t, m.network(), "192.0.2.1:"+port))
		}
		own = append(own, newTalk(t, m.network(), "127.0.0.1:"+nodePort))
		onNode := []*talk{begin("192.0.2.1:" + nodePort), begin("192.0.2.1:8088"),
			newTalk(t, u.podNetwork(t, "echo"), "192.0.2.1:8088")}
		goOn(t, slices.Concat(inside, own, onNode, []*talk{pod, service, outside})...)
		ping := func() string {
			out, _ := k.run(t, "", "exec", "client", "--", "busybox", "ping", "-c1", "-W5", "192.0.2.2")
			return out
		}
		if out := ping(); strings.Contains(out, " 0% packet loss") != forwarded {
			t.Errorf("ping: %s", out)
		}

		u.now.kill(t)
		if forwarded {
			goOn(t, slices.Concat(inside, own, onNode, []*talk{pod, service, outside})...)
			goOn(t, newTalks(t, far.network(), inside)...)
			goOn(t, newTalks(t, m.network(), own)...)
		} else {
			goOn(t, slices.Concat(onNode, []*talk{pod, service})...)
			for _, c := range slices.Concat(inside, own, []*talk{outside}) {
				c.ends(t)
			}
		}
		goOn(t, newTalks(t, client, onNode)...)
		u.begin(t)
		k.ok(t, "wait --for=condition=Ready pod/echo pod/client --timeout=2m")
		if !forwarded {
			outside, inside = begin(elsewhere), newTalks(t, far.network(), inside)
			own = newTalks(t, m.network(), own)
		}
		goOn(t, slices.Concat(inside, own, onNode, []*talk{pod, service, outside})...)
		goOn(t, newTalks(t, far.network(), inside)...)
		goOn(t, newTalks(t, m.network(), own)...)
		for address := range from() {
			if address != "192.0.2.1" {
				t.Errorf("elsewhere a pod is seen as %s; want the machine's address", address)
			}
		}
		// Not by down, which may stop the client's pod first.
		k.ok(t, "delete pod echo --timeout=2m")
		pod.ends(t)
		u.down(t)
	})
}

// echo sends back what is sent to a port of the machine, and says which addresses have connected to it.
func (m *machine) echo(t *testing.T) (address string, from func() map[string]bool) {
	t.Helper()
	l, err := insideOf(m, func() (net.Listener, error) { return net.Listen("tcp", "192.0.2.2:0") })
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	serve(t, l, func(conn net.Conn) {
		mu.Lock()
		seen[conn.RemoteAddr().(*net.TCPAddr).IP.String()] = true
		mu.Unlock()
		_, _ = io.Copy(conn, conn) // Until somebody ends it.
	})
	return l.Addr().String(), func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

// talk is a connection to somebody who sends back each line, on which there is a new one every 100 ms.
type talk struct {
	address string
	lines   atomic.Int64 // How many have come back.
	ended   chan struct{}
	err     error // Why it has ended.
}

func newTalk(t *testing.T, network, address string) *talk {
	t.Helper()
	var conn net.Conn
	eventually(t, "a connection to "+address, func() (bool, string) {
		var err error
		conn, err = inNetwork(network, func() (net.Conn, error) { return net.DialTimeout("tcp", address, patience) })
		return err == nil, fmt.Sprint(err)
	})
	c := &talk{address: address, ended: make(chan struct{})}
	t.Cleanup(func() {
		_ = conn.Close()
		<-c.ended
	})
	go func() {
		defer close(c.ended)
		c.err = c.keepUp(conn)
	}()
	return c
}

// newTalks are further connections to where there are some already.
func newTalks(t *testing.T, network string, all []*talk) (more []*talk) {
	t.Helper()
	for _, c := range all {
		more = append(more, newTalk(t, network, c.address))
	}
	return more
}

func (c *talk) keepUp(conn net.Conn) error {
	in := bufio.NewReader(conn)
	for range time.Tick(100 * time.Millisecond) {
		want := fmt.Sprintf("%d\n", c.lines.Load())
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, want); err != nil {
			return err
		}
		got, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%q comes back for %q", got, want)
		}
		c.lines.Add(1)
	}
	return nil
}

// goOn waits for two seconds' lines on each connection.
func goOn(t *testing.T, all ...*talk) {
	t.Helper()
	var until []int64
	for _, c := range all {
		until = append(until, c.lines.Load()+20)
	}
	for i, c := range all {
		eventually(t, "the connection to "+c.address+" goes on", func() (bool, string) {
			select {
			case <-c.ended:
				t.Fatalf("the connection to %s has ended after %d lines: %v", c.address, c.lines.Load(), c.err)
			default:
			}
			return c.lines.Load() >= until[i], ""
		})
	}
}

// ends waits until somebody has ended the connection.
func (c *talk) ends(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
		if errors.Is(c.err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection to %s is silent, and has not ended", c.address)
		}
	case <-time.After(patience):
		t.Fatalf("the connection to %s has not ended", c.address)
	}
}

const talkManifest = `
apiVersion: v1
kind: Pod
metadata: {name: echo, labels: {app: echo}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: echo
    image: localhost/box:1
    command: [sh, -c, 'nc -ll -p 8080 -e cat']
    ports: [{containerPort: 8080, hostPort: 8088}]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  type: LoadBalancer
  selector: {app: echo}
  ports: [{port: 8085, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
`
