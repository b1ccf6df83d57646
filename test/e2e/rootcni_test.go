//go:build rootonly

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRootCNI has pods of images connected by plugins of CNI: the node waits for their configuration, pods reach each
// other, a restart keeps their addresses, why a plugin fails is the pod's event, and nothing is left of pods that are
// gone.
//
// spec: NET-1, WORK-4
func TestRootCNI(t *testing.T) {
	t.Parallel()
	const plugins = "/usr/lib/cni"
	if _, err := os.Stat(filepath.Join(plugins, "bridge")); err != nil {
		t.Skip("containernetworking-plugins is not installed (make deps)")
	}
	m := newMachine(t)
	u := m.imageCluster(t)
	netD, leases := filepath.Join(u.home, "net.d"), filepath.Join(u.home, "leases")
	conf := func(kind string) {
		t.Helper()
		text := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"e2e","plugins":[{"type":%q,"bridge":"cni-e2e",`+
			`"isGateway":true,"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.78.0.0/24"}]]}},`+
			`{"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`, kind, leases)
		file := filepath.Join(netD, "10-e2e.conflist")
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(netD, 0o700); err != nil {
		t.Fatal(err)
	}
	conf("bridge")
	u.flags = []string{"--cni-conf-dir", netD, "--cni-bin-dir", plugins}
	u.begin(t)
	k := u.kubectl(t)
	apply := func(manifest string) {
		t.Helper()
		if out, code := k.run(t, manifest, "apply", "-f", "-"); code != 0 {
			t.Fatal(out)
		}
	}
	until := func(want string, ask func() string) {
		t.Helper()
		err := poll(patience, func() (bool, string) {
			got := ask()
			return strings.Contains(got, want), got
		})
		if err != nil {
			t.Errorf("no %q: %v", want, err)
		}
	}
	apply(cniManifest)
	k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=2m")
	const whose = "get pods web client -o jsonpath={.items[*].status.podIP}"
	addresses := k.ok(t, whose)
	web, _, _ := strings.Cut(addresses, " ")
	if !strings.HasPrefix(web, "10.78.0.") {
		t.Fatalf("the pods' addresses are %q", addresses)
	}
	reach := func() {
		t.Helper()
		for _, at := range []string{web + " 8080", "10.78.0.1 7080"} {
			until("web", func() string {
				out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", "echo | nc -w 5 "+at+" 2>&1")
				return out
			})
		}
	}
	reach()

	u.now.kill(t)
	u.begin(t)
	k.ok(t, "wait --for=condition=Ready pod/web pod/client --timeout=2m")
	if now := k.ok(t, whose); now != addresses {
		t.Errorf("the pods' addresses were %s and are %s after a restart", addresses, now)
	}
	reach()

	conf("missing")
	until("missing", func() string { return k.ok(t, "get nodes -o jsonpath={.items[*].status.conditions[*].message}") })
	apply(strings.ReplaceAll(cniManifest[strings.LastIndex(cniManifest, "---"):], "client", "late"))
	until("missing", func() string {
		return k.ok(t, "get events --field-selector reason=FailedCreatePodSandBox,involvedObject.name=late "+
			"-o jsonpath={.items[*].message}")
	})
	conf("bridge")
	k.ok(t, "wait --for=condition=Ready pod/late --timeout=2m")

	k.ok(t, "delete pod late --wait")
	records, err := filepath.Glob(filepath.Join(u.dir, "nodes", "*", "cni", "sandboxes", "*.json"))
	if len(records) != 2 || err != nil {
		t.Errorf("two pods are connected, and the records are %v, %v", records, err)
	}
	u.down(t)
	if left, err := filepath.Glob(filepath.Join(leases, "*", "10.78.*")); len(left) > 0 || err != nil {
		t.Errorf("addresses are leased to nobody: %v, %v", left, err)
	}
	for _, r := range records {
		kept := "/run/netns/monoplane-" + strings.TrimSuffix(filepath.Base(r), ".json")
		for _, left := range []string{r, kept} {
			if _, err := os.Lstat(left); !os.IsNotExist(err) {
				t.Errorf("%s is kept for nobody: %v", left, err)
			}
		}
	}
	if links := m.run(t, "ip", "-o", "link"); strings.Contains(links, "veth") {
		t.Errorf("links are left:\n%s", links)
	}
}

const cniManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: localhost/box:1
    command: [sh, -c, 'while :; do nc -l -p 8080 -e hostname; done']
    ports: [{containerPort: 8080, hostPort: 7080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers: [{name: client, image: 'localhost/box:1'}]
`
