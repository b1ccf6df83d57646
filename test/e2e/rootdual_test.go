//go:build rootonly

package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// TestRootDualStack gives pods of images addresses of both families: they reach each other by both, a Service of both
// by both of its addresses, and another machine by both of its own; that one and pods reach the node port, a host port
// and the port of a load balancer by both addresses of the machine. The Service's name has both. Policies count for
// both. A restart changes nothing.
//
// spec: NET-1, WORK-4
func TestRootDualStack(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		far := m.outside(t)
		m.run(t, "ip", "addr", "add", "2001:db8::1/64", "dev", "up0", "nodad")
		far.run(t, "ip", "addr", "add", "2001:db8::2/64", "dev", "up0", "nodad")
		m.run(t, "ip", "route", "add", "default", "via", "2001:db8::2")
		u := m.imageCluster(t)
		u.flags = []string{"--cluster-cidr", "10.244.0.0/16,fd00:10:244::/56", "--service-cluster-ip-range",
			"10.96.0.0/16,fd00:10:96::/112"}
		u.begin(t)
		k := u.kubectl(t)
		u.apply(t, dualManifest)
		k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=2m")
		both := func(command string) (four, six netip.Addr) {
			t.Helper()
			all := strings.Fields(k.ok(t, command))
			for _, text := range all {
				if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
					four = a
				} else if err == nil {
					six = a
				}
			}
			if len(all) != 2 || !four.IsValid() || !six.IsValid() {
				t.Fatalf("%s: %v; want one address of each family", command, all)
			}
			return four, six
		}
		pod4, pod6 := both("get pod web -o jsonpath={.status.podIPs[*].ip}")
		both("get pod client -o jsonpath={.status.podIPs[*].ip}")
		service4, service6 := both("get service web -o jsonpath={.spec.clusterIPs[*]}")
		nodePort := k.ok(t, "get service web -o jsonpath={.spec.ports[0].nodePort}")
		k.until(t, "get service balanced -o jsonpath={.status.loadBalancer.ingress[*].ip}", `^192\.0\.2\.1 2001:db8::1$`)
		client := u.podNetwork(t, "client")
		says := func(network, host, port, want string) {
			t.Helper()
			eventually(t, host+" port "+port+" says "+want, func() (bool, string) {
				text, err := asked(network, net.JoinHostPort(host, port))
				return text == want+"\n", fmt.Sprint(text, err)
			})
		}
		reach := func() {
			t.Helper()
			for _, pod := range []netip.Addr{pod4, pod6} {
				says(client, pod.String(), "8080", "web")
			}
			for _, service := range []netip.Addr{service4, service6} {
				says(client, service.String(), "80", "web")
				eventually(t, "the name has "+service.String(), func() (bool, string) {
					out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", "nslookup web.default.svc.cluster.local")
					return strings.Contains(out, service.String()), out
				})
			}
			for _, elsewhere := range []string{"192.0.2.2", "2001:db8::2"} {
				says(client, elsewhere, "9000", "outside")
			}
			for _, machine := range []string{"192.0.2.1", "2001:db8::1"} {
				for _, port := range []string{nodePort, "8085", "8088"} {
					says(far.network(), machine, port, "web")
					says(client, machine, port, "web")
				}
			}
		}
		reach()
		// Policies judge what goes elsewhere by either, on whatever way it goes out.
		u.apply(t, dualPolicy)
		for _, elsewhere := range []string{"192.0.2.2", "2001:db8::2"} {
			eventually(t, elsewhere+" is forbidden", func() (bool, string) {
				text, err := asked(client, net.JoinHostPort(elsewhere, "9000"))
				return errors.Is(err, syscall.ECONNREFUSED), fmt.Sprint(text, err)
			})
		}
		for _, pod := range []netip.Addr{pod4, pod6} {
			says(client, pod.String(), "8080", "web")
		}
		k.ok(t, "delete networkpolicy out")
		reach()
		u.now.kill(t)
		u.begin(t)
		k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=2m")
		if four, six := both("get pod web -o jsonpath={.status.podIPs[*].ip}"); four != pod4 || six != pod6 {
			t.Errorf("the pod had %s and %s, and has %s and %s after a restart", pod4, pod6, four, six)
		}
		reach()
		u.down(t)
	})
}

// TestRootFamilies gives Services another first family than pods, and both only IPv6: pods reach the API, the DNS and
// each other's Services all the same.
//
// spec: NET-1, WORK-4
func TestRootFamilies(t *testing.T) {
	t.Parallel()
	const pods4, pods6, services4, services6 = "10.244.0.0/16", "fd00:10:244::/56", "10.96.0.0/16", "fd00:10:96::/112"
	for name, c := range map[string]struct{ pods, services, manifest string }{
		"IPv6 first": {pods4 + "," + pods6, services6 + "," + services4, dualManifest},
		"IPv6 only":  {pods6, services6, strings.ReplaceAll(dualManifest, "RequireDualStack", "SingleStack")},
	} {
		t.Run(name, func(t *testing.T) {
			rootAndUser(t, func(t *testing.T, m *machine) {
				u := m.imageCluster(t)
				u.flags = []string{"--cluster-cidr", c.pods, "--service-cluster-ip-range", c.services}
				u.begin(t)
				k := u.kubectl(t)
				u.apply(t, c.manifest)
				k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=2m")
				for script, want := range map[string]string{
					"echo $KUBERNETES_SERVICE_HOST": "fd00:10:96::1\n",
					"nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo open": "open\n",
					"nc -w 5 kubernetes.default 443 </dev/null && echo open":                            "open\n",
					"nc -w 5 web 80 </dev/null": "web\n",
				} {
					eventually(t, script, func() (bool, string) {
						out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", script+" 2>&1")
						return out == want, out
					})
				}
				nodePort := k.ok(t, "get service web -o jsonpath={.spec.ports[0].nodePort}")
				eventually(t, "the machine reaches the node port", func() (bool, string) {
					text, err := asked(m.network(), net.JoinHostPort("::1", nodePort))
					return text == "web\n", fmt.Sprint(text, err)
				})
				u.down(t)
			})
		})
	}
}

const dualPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out}
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress:
  - to:
    - ipBlock: {cidr: 0.0.0.0/0, except: [192.0.2.2/32]}
    - ipBlock: {cidr: '::/0', except: ['2001:db8::2/128']}
`

const dualManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: localhost/box:1
    command: [sh, -c, 'nc -ll -p 8080 -e hostname']
    ports: [{containerPort: 8080, hostPort: 8088}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 8085, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
`
