//go:build rootonly

package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestRootServices follows what Services say about who is led where: a pod reaches itself, over TCP and UDP; clients
// stay with one pod; of policies that are local only pods of this node count; and an address of the machine leads to a
// Service. Clients elsewhere are seen with their own address. What the endpoints of the API server say leads there
// from pods, and the server's certificate is for it.
//
// spec: WORK-4, NET-1
func TestRootServices(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		far := m.outside(t)
		m.run(t, "ip", "addr", "add", "192.0.2.3/24", "dev", "up0")
		u := m.imageCluster(t)
		u.begin(t)
		k := u.kubectl(t)
		u.apply(t, servicesManifest)
		k.ok(t, "wait --for=condition=Ready pod/self pod/one pod/two --timeout=2m")
		for _, pod := range []string{"self", "one", "two"} {
			u.serveIn(t, pod)
		}
		self, outside := u.podNetwork(t, "self"), far.network()
		address := func(service, port string) string {
			return k.ok(t, "get service "+service+" -o jsonpath={.spec.clusterIP}") + ":" + port
		}
		nodePort := func(service string) string {
			return "192.0.2.1:" + k.ok(t, "get service "+service+" -o jsonpath={.spec.ports[0].nodePort}")
		}
		says := func(what, network, address, want string) string {
			t.Helper()
			var text string
			eventually(t, what, func() (bool, string) {
				var err error
				text, err = asked(network, address)
				return strings.HasPrefix(text, want), fmt.Sprint(text, err)
			})
			return text
		}
		own := k.ok(t, "get pod self -o jsonpath={.status.podIP}")
		if said := says("a pod reaches itself", self, address("self", "80"), "self "); said == "self "+own+"\n" {
			t.Errorf("a pod that reaches itself by its Service sees its own address %s as the client's", own)
		}
		eventually(t, "a pod reaches itself over UDP", func() (bool, string) {
			text, err := inNetwork(self, func() (string, error) { return askUDP(address("self", "53")) })
			return strings.HasPrefix(text, "self "), fmt.Sprint(text, err)
		})

		for network, address := range map[string]string{self: address("pair", "80"), outside: nodePort("pair")} {
			first := says("one of two pods answers", network, address, "")
			for range 20 {
				if text, err := asked(network, address); text != first || err != nil {
					t.Fatalf("%s is answered %q, then %q: %v", address, first, text, err)
				}
			}
		}

		says("a Service whose pod is on this node is reached by pods", self, address("local", "8090"), "self ")
		says("and by its node port", outside, nodePort("local"), "self 192.0.2.2\n")
		says("and at an address of the machine", outside, "192.0.2.3:8090", "self 192.0.2.2\n")

		says("endpoints elsewhere are for pods, whatever clients outside get", self, address("outer", "80"), "outside")
		for network, address := range map[string]string{self: address("inner", "80"), outside: nodePort("outer")} {
			text, err := inNetwork(network, func() (string, error) { return ask(address, time.Second) })
			if text != "" {
				t.Errorf("%s, which is for pods of this node only, is answered %q (%v)", address, text, err)
			}
		}

		at := k.ok(t, "get endpointslices -l kubernetes.io/service-name=kubernetes -o "+
			"jsonpath={.items[*].endpoints[*].addresses[*]}:{.items[*].ports[*].port}")
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM([]byte(k.ok(t, `get configmap kube-root-ca.crt -o jsonpath={.data.ca\.crt}`)))
		eventually(t, "a pod reaches the API server by its endpoint "+at, func() (bool, string) {
			_, err := inNetwork(self, func() (struct{}, error) {
				conn, err := tls.Dial("tcp", at, &tls.Config{RootCAs: trusted})
				if err == nil {
					err = conn.Close()
				}
				return struct{}{}, err
			})
			return err == nil, fmt.Sprint(err)
		})
		u.down(t)
	})
}

// serveIn answers in a pod, at port 8080 of TCP and UDP, with the pod's name and the client's address.
func (u *imageCluster) serveIn(t *testing.T, pod string) {
	t.Helper()
	network := u.podNetwork(t, pod)
	l, err := inNetwork(network, func() (net.Listener, error) { return net.Listen("tcp", ":8080") })
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, func(conn net.Conn) {
		fmt.Fprintf(conn, "%s %s\n", pod, conn.RemoteAddr().(*net.TCPAddr).IP)
	})
	packets, err := inNetwork(network, func() (net.PacketConn, error) { return net.ListenPacket("udp", ":8080") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = packets.Close() })
	go func() {
		for buf := make([]byte, 100); ; {
			_, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(fmt.Appendf(nil, "%s %s\n", pod, from), from) // Who gets no answer asks again.
		}
	}()
}

// askUDP sends a packet to an address, and returns the one that comes back.
func askUDP(address string) (string, error) {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

var servicesManifest = `
apiVersion: v1
kind: Pod
metadata: {name: self, labels: {app: self}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'localhost/box:1'}]
---
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {app: pair}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'localhost/box:1'}]
---
apiVersion: v1
kind: Pod
metadata: {name: two, labels: {app: pair}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'localhost/box:1'}]
---
apiVersion: v1
kind: Service
metadata: {name: self}
spec:
  selector: {app: self}
  ports:
  - {name: tcp, port: 80, targetPort: 8080}
  - {name: udp, protocol: UDP, port: 53, targetPort: 8080}
---
apiVersion: v1
kind: Service
metadata: {name: pair}
spec:
  type: NodePort
  sessionAffinity: ClientIP
  selector: {app: pair}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec:
  type: NodePort
  internalTrafficPolicy: Local
  externalTrafficPolicy: Local
  externalIPs: [192.0.2.3]
  selector: {app: self}
  ports: [{port: 8090, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: outer}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  ports: [{port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: inner}
spec:
  internalTrafficPolicy: Local
  ports: [{port: 80}]
` + elsewhereSlice + strings.ReplaceAll(elsewhereSlice, "outer", "inner")

// elsewhereSlice says that the server on the other machine is an endpoint of a Service, on another node.
const elsewhereSlice = `
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: outer, labels: {kubernetes.io/service-name: outer}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.2], nodeName: elsewhere}]
ports: [{port: 9000}]
`
