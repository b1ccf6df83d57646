//go:build rootonly

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRootUserLimitsOfStorage evicts pods that store more than they may, without root, though they keep it in
// directories that nobody but their users may read: with the ids of /etc/subuid, and with one id, where the agent's
// own user has locked itself out. A pod that keeps to its limits goes on.
//
// spec: QOS-2, VOL-1
func TestRootUserLimitsOfStorage(t *testing.T) {
	for _, tc := range []struct{ name, user, lock string }{
		{"many", "1000", "700"},
		{"one", "0", "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.uid = unprivileged
			if tc.name == "many" {
				m = withIDs(t)
			}
			u := m.imageCluster(t)
			u.images = filepath.Join(u.home, "owners")
			u.load(t, ownersImage)
			u.begin(t)
			k := u.kubectl(t)
			manifest := strings.NewReplacer("USER", tc.user, "LOCK", tc.lock).Replace(lockedManifest)
			if out, code := k.run(t, manifest, "apply", "-f", "-"); code != 0 {
				t.Fatal(out)
			}
			k.evicted(t, "volume", `Usage of EmptyDir volume "e" exceeds the limit "1Mi". `)
			k.evicted(t, "layer", `Container c exceeded its local ephemeral storage limit "1Mi". `)
			k.evicted(t, "all", `Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. `)
			k.ok(t, "wait --for=condition=Ready pod/modest --timeout=60s")
		})
	}
}

// evicted waits until a pod has ended so, and compares the reason.
func (k *kubectl) evicted(t *testing.T, pod, message string) {
	t.Helper()
	want := "Failed|Evicted|" + message
	err := poll(patience, func() (bool, string) {
		got := k.ok(t, "get pod "+pod+" -o jsonpath={.status.phase}|{.status.reason}|{.status.message}")
		return got == want, got
	})
	if err != nil {
		t.Errorf("%s: %v; want %q", pod, err, want)
	}
}

const lockedManifest = `
apiVersion: v1
kind: Pod
metadata: {name: volume}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: USER}
  containers:
  - name: c
    image: localhost/owners:1
    command: [sh, -c, 'mkdir /e/x && head -c 3000000 /dev/zero >/e/x/f && chmod LOCK /e/x && exec sleep 600']
    volumeMounts: [{name: e, mountPath: /e}]
  volumes:
  - {name: e, emptyDir: {sizeLimit: 1Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: layer}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: USER}
  containers:
  - name: c
    image: localhost/owners:1
    command: [sh, -c, 'mkdir /o/x && head -c 3000000 /dev/zero >/o/x/f && chmod LOCK /o/x && exec sleep 600']
    resources: {limits: {ephemeral-storage: 1Mi}}
  - name: other
    image: localhost/owners:1
    resources: {limits: {ephemeral-storage: 10Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: all}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: USER}
  containers:
  - name: c
    image: localhost/owners:1
    command: [sh, -c, 'mkdir /e/x && head -c 3000000 /dev/zero >/e/x/f && chmod LOCK /e/x && exec sleep 600']
    volumeMounts: [{name: e, mountPath: /e}]
    resources: {limits: {ephemeral-storage: 1Mi}}
  volumes:
  - {name: e, emptyDir: {}}
---
apiVersion: v1
kind: Pod
metadata: {name: modest}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: USER}
  containers:
  - name: c
    image: localhost/owners:1
    command: [sh, -c, 'mkdir /e/x && head -c 500000 /dev/zero >/e/x/f && chmod LOCK /e/x && exec sleep 600']
    volumeMounts: [{name: e, mountPath: /e}]
    resources: {limits: {ephemeral-storage: 1Mi}}
  volumes:
  - {name: e, emptyDir: {sizeLimit: 1Mi}}
`
