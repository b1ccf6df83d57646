//go:build rootonly

package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestRootReach follows what pods of images reach, and who reaches them, beyond Services by their own address, as root
// and as a user who is not: the API, which they know by the mounted certificate and which knows them by the mounted
// token; ports elsewhere that refuse; addresses that somebody leads to the node (externalIPs); ports of the machine
// (hostPort), from pods and from elsewhere; what policies leave of all that; and how fast they may send
// (kubernetes.io/egress-bandwidth).
//
// spec: NET-1, WORK-4, CTR-6
func TestRootReach(t *testing.T) {
	t.Parallel()
	for name, uid := range map[string]int{"root": 0, "root forwards": 0, "user": unprivileged} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.uid = uid
			far := m.outside(t)
			if name == "root forwards" { // Then the kernel leads clients elsewhere to pods.
				m.run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
			}
			u := m.imageCluster(t)
			// In a container, where there is neither a kubeconfig nor a name of the cluster.
			tool := filepath.Join(u.home, "kubectl")
			text, err := os.ReadFile(binary(t, "kubectl"))
			if err == nil {
				err = os.WriteFile(tool, text, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
			u.begin(t)
			k := u.kubectl(t)
			apply := func(manifest string) {
				t.Helper()
				if out, code := k.run(t, manifest, "apply", "-f", "-"); code != 0 {
					t.Fatal(out)
				}
			}
			apply(strings.ReplaceAll(reachManifest, "TOOL", tool))
			k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=2m")
			in := func(script string) string {
				out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", script+" 2>&1")
				return out
			}
			becomes := func(what, script, want string) {
				t.Helper()
				eventually(t, what+" says "+want, func() (bool, string) {
					out := in(script)
					return strings.Contains(out, want), out
				})
			}
			fromFar := func(port string) func() (bool, string) {
				return func() (bool, string) {
					out := far.run(t, "busybox", "sh", "-c", "echo | busybox nc -w 5 192.0.2.1 "+port+" 2>&1 || true")
					return strings.HasPrefix(out, "web"), out
				}
			}
			not := func(is func() (bool, string)) func() (bool, string) {
				return func() (bool, string) { yes, out := is(); return !yes, out }
			}

			bounds, err := inNetwork(u.podNetwork(t, "client"), func() ([]netlink.Qdisc, error) {
				link, err := netlink.LinkByName("eth0")
				if err != nil {
					return nil, err
				}
				return netlink.QdiscList(link)
			})
			bounded := slices.ContainsFunc(bounds, func(q netlink.Qdisc) bool {
				tbf, ok := q.(*netlink.Tbf)
				return ok && tbf.Rate == 100_000_000 // bytes a second
			})
			if err != nil || !bounded {
				t.Errorf("a pod may send %v, %v; want 800 Mbit/s", bounds, err)
			}

			// The API, by address and by name, whose certificate is checked.
			const self = "system:serviceaccount:default:default"
			const named = " --server https://kubernetes.default.svc --certificate-authority $D/ca.crt"
			const vars = "D=/var/run/secrets/kubernetes.io/serviceaccount; "
			becomes("the API", "/kubectl auth whoami -o jsonpath={.status.userInfo.username}", self)
			becomes("the API by its name", vars+"/kubectl auth whoami -o jsonpath={.status.userInfo.username}"+named+
				" --token $(cat $D/token)", self)
			becomes("the API without rights", "/kubectl get secrets", `User "`+self+`" cannot list resource "secrets"`)
			becomes("the API with a forged token", vars+"/kubectl get pods"+named+" --token $(cat $D/token)x",
				"You must be logged in")
			becomes("another certificate", "/kubectl get pods --server https://kubernetes.default.svc --token x",
				"certificate signed by unknown authority")

			becomes("a server elsewhere", "nc -w 5 192.0.2.2 9000 </dev/null", "outside")
			becomes("a port elsewhere where nobody listens", "nc -w 5 192.0.2.2 9001 </dev/null", "Connection refused")
			becomes("an address that leads to the node", "echo | nc -w 5 198.51.100.7 80", "web")

			const hostPort = "echo | nc -w 5 192.0.2.1 8088"
			becomes("a host port", hostPort, "web")
			eventually(t, "clients elsewhere reach the host port", fromFar("8088"))
			apply(strings.ReplaceAll(hostPortManifest, "NAME", "second"))
			k.until(t, "describe pod second", `FailedScheduling .*free ports`)

			apply(reachPolicies)
			becomes("a pod that is isolated", "echo | nc -w 5 web.default.svc.cluster.local 80", "refused")
			becomes("a host port of a pod that is isolated", hostPort, "refused")
			eventually(t, "clients elsewhere do not reach the host port of a pod that is isolated", not(fromFar("8088")))
			k.ok(t, `patch networkpolicy web --type=json `+
				`-p=[{"op":"add","path":"/spec/ingress/0/from/-","value":{"ipBlock":{"cidr":"192.0.2.2/32"}}}]`)
			eventually(t, "a client elsewhere reaches it who is allowed by its address", fromFar("8088"))
			becomes("a server elsewhere that is forbidden", "nc -w 5 192.0.2.2 9000 </dev/null", "refused")
			becomes("the API of the node", "/kubectl auth whoami -o jsonpath={.status.userInfo.username}", self)
			k.ok(t, "label pod client role=friend")
			becomes("a friend", "echo | nc -w 5 web.default.svc.cluster.local 80", "web")
			becomes("a friend by the host port", hostPort, "web")
			k.ok(t, "delete networkpolicy --all")
			becomes("a server elsewhere", "nc -w 5 192.0.2.2 9000 </dev/null", "outside")
			eventually(t, "clients elsewhere reach the host port again", fromFar("8088"))

			k.ok(t, "delete pod web --timeout=2m")
			k.ok(t, "wait --for=condition=Ready pod/second --timeout=2m")
			eventually(t, "the host port leads to the next pod", func() (bool, string) {
				_, out := fromFar("8088")()
				return strings.HasPrefix(out, "second"), out
			})
			becomes("the host port of the next pod", hostPort, "second")
			k.ok(t, "delete pod second --timeout=2m")
			eventually(t, "nobody has the host port", func() (bool, string) {
				_, out := fromFar("8088")()
				return strings.Contains(out, "refused"), out
			})
			becomes("a host port that nobody has", hostPort, "refused")

			// Each attempt to make the pod has another sandbox, but says the same: one event, which is counted.
			taken, err := insideOf(m, func() (net.Listener, error) { return net.Listen("tcp", ":8088") })
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			apply(strings.ReplaceAll(hostPortManifest, "NAME", "third"))
			k.until(t, "describe pod third",
				`FailedCreatePodSandBox +\S+ \(x\d+ over .*: the host port 8088: .*already in use\n`)
			taken.Close()
			k.ok(t, "wait --for=condition=Ready pod/third --timeout=60s")
			k.ok(t, "delete pod third --timeout=60s")
			u.down(t)
		})
	}
}

const hostPortManifest = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: localhost/box:1
    command: [sh, -c, 'nc -ll -p 8080 -e hostname']
    ports: [{containerPort: 8080, hostPort: 8088}]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
`

var reachManifest = strings.ReplaceAll(hostPortManifest, "NAME", "web") + `
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  externalIPs: [198.51.100.7]
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, annotations: {kubernetes.io/egress-bandwidth: 800M}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: client
    image: localhost/box:1
    volumeMounts: [{name: tool, mountPath: /kubectl}]
  volumes: [{name: tool, hostPath: {path: TOOL, type: File}}]
`

const reachPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out}
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [192.0.2.0/24]}}]}]
`
