//go:build rootonly

package e2e_test

import (
	"strings"
	"testing"
)

// TestRootPolicies isolates pods of images, as root and as a user who is not: what a policy does not let through is
// refused, by address and by Service, for pods that were there and for those that come, while the server is dead and
// after it has come back. The machine reaches its pods always.
//
// spec: NET-1
func TestRootPolicies(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		u := m.imageCluster(t)
		u.begin(t)
		policies(t, m, u)
		u.down(t)
	})
}

func policies(t *testing.T, m *machine, u *imageCluster) {
	t.Helper()
	k := u.kubectl(t)
	apply := func(manifest string) {
		t.Helper()
		out, code := k.run(t, manifest, "apply", "-f", "-")
		if code != 0 || strings.Contains(out, "not enforced") {
			t.Fatal(out)
		}
	}
	apply(webManifest)
	k.ok(t, "rollout status deployment/web --timeout=2m")
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")
	address := k.ok(t, "get pods -l app=web -o jsonpath={.items[0].status.podIP}")
	port := k.ok(t, "get service web -o jsonpath={.spec.ports[0].nodePort}")
	becomes := func(host, want string) {
		t.Helper()
		err := poll(patience, func() (bool, string) {
			got, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", "echo | nc -w 5 "+host+" 2>&1")
			return strings.Contains(got, want), got
		})
		if err != nil {
			t.Errorf("%s does not become %q: %v", host, want, err)
		}
	}
	everywhere := func(want string) {
		t.Helper()
		becomes(address+" 8080", want)
		becomes("web 80", want)
		// A server says its name and ends: nc may fail to hand it its line, or find the next one not there yet.
		eventually(t, "the machine reaches its pods", func() (bool, string) {
			out := m.run(t, "busybox", "sh", "-c", "echo | busybox nc -w 5 127.0.0.1 "+port+" || true")
			return strings.Contains(out, "web-"), out
		})
	}
	const through, refused = "web-", "refused"
	everywhere(through)
	apply(webPolicy)
	everywhere(refused)
	k.ok(t, "label pod client role=friend")
	everywhere(through)
	k.ok(t, "label pod client role-")
	everywhere(refused)

	k.ok(t, "scale deployment/web --replicas=3")
	k.ok(t, "rollout status deployment/web --timeout=2m")
	for ip := range strings.FieldsSeq(k.ok(t, "get pods -l app=web -o jsonpath={.items[*].status.podIP}")) {
		becomes(ip+" 8080", refused)
	}
	// The client goes on trying while nobody is there to refuse it but the kernel.
	_, code := k.run(t, "", "exec", "client", "--", "sh", "-c", "while :; do echo | nc -w 5 "+address+
		" 8080; echo tried; sleep 0.1; done >/tmp/tries 2>&1 </dev/null &")
	if code != 0 {
		t.Fatal("the client does not begin to try")
	}
	tries := func() string { return k.ok(t, "exec client -- cat /tmp/tries") }
	eventually(t, "the client tries", func() (bool, string) {
		all := tries()
		return strings.Contains(all, "tried"), all
	})
	before := strings.Count(tries(), "tried")
	u.now.kill(t)
	u.begin(t)
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")
	eventually(t, "the client goes on trying", func() (bool, string) {
		all := tries()
		return strings.Count(all, "tried") > before, all
	})
	if all := tries(); strings.Contains(all, through) {
		t.Errorf("the pod was let through while the server was dead or began: %s", all)
	}
	everywhere(refused)
	k.ok(t, "delete networkpolicy web")
	everywhere(through)
}

const webPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}], ports: [{port: 8080}]}]
`
