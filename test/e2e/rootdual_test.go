//go:build rootonly

package e2e_test

import (
	"net/netip"
	"strings"
	"testing"
)

// TestRootDualStack gives pods of images addresses of both families: they reach each other by both, and a Service of
// both by both of its addresses; its name has both. A restart changes nothing.
//
// spec: NET-1, WORK-4
func TestRootDualStack(t *testing.T) {
	m := newMachine(t)
	u := m.imageCluster(t)
	u.flags = []string{"--cluster-cidr", "10.244.0.0/16,fd00:10:244::/56", "--service-cluster-ip-range",
		"10.96.0.0/16,fd00:10:96::/112"}
	u.begin(t)
	k := u.kubectl(t)
	if out, code := k.run(t, dualManifest, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=60s")
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
	inClient := func(script, want string) {
		t.Helper()
		err := poll(patience, func() (bool, string) {
			got, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", script+" 2>&1")
			return strings.Contains(got, want), got
		})
		if err != nil {
			t.Errorf("%s: %v", script, err)
		}
	}
	reach := func() {
		t.Helper()
		for _, to := range []string{pod4.String() + " 8080", pod6.String() + " 8080", service4.String() + " 80",
			service6.String() + " 80"} {
			inClient("echo | nc -w 5 "+to, "web")
		}
		for _, a := range []netip.Addr{service4, service6} {
			inClient("nslookup web.default.svc.cluster.local", a.String())
		}
	}
	reach()
	u.now.kill(t)
	u.begin(t)
	k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=60s")
	if four, six := both("get pod web -o jsonpath={.status.podIPs[*].ip}"); four != pod4 || six != pod6 {
		t.Errorf("the pod had %s and %s, and has %s and %s after a restart", pod4, pod6, four, six)
	}
	reach()
}

const dualManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: localhost/box:1
    command: [sh, -c, 'while :; do nc -l -p 8080 -e hostname; done']
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
`
