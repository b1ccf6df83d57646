//go:build rootonly

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRootUserGroups gives volumes to the fsGroup of a pod, without root: with the ids of /etc/subuid as Kubernetes
// does, also what is written anew later; with one id the pod runs all the same, and an event says what is not so.
//
// spec: VOL-1, CTR-6
func TestRootUserGroups(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, m *machine, user string) (*imageCluster, *kubectl) {
		u := m.imageCluster(t)
		u.images = filepath.Join(u.home, "owners")
		u.load(t, ownersImage)
		u.begin(t)
		k := u.kubectl(t)
		if out, code := k.run(t, strings.ReplaceAll(groupsManifest, "USER", user), "apply", "-f", "-"); code != 0 {
			t.Fatal(out)
		}
		return u, k
	}
	t.Run("many", func(t *testing.T) {
		u, k := begin(t, withIDs(t), "1000")
		k.ok(t, "wait --for=condition=Ready pod/groups --timeout=2m")
		const look = "id; stat -L -c '%u:%g %a' /e /c/a /s/a /var/run/secrets/kubernetes.io/serviceaccount/token; " +
			"cat /c/a /s/a; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && touch /e/f && stat -c %u:%g /e/f"
		out, _ := k.run(t, "", "exec", "groups", "--", "sh", "-c", look)
		// The agent cannot give a token to its user, and lets all users of the pod read it in place of that.
		want := `uid=1000 gid=0 groups=0,2000,3000
0:2000 2777
0:2000 440
0:2000 440
0:2000 644
one
secret
1000:2000
`
		if out != want {
			t.Errorf("the pod sees\n%s\nwant\n%s", out, want)
		}
		if out, code := k.run(t, "", "patch", "configmap", "a", "-p", `{"data":{"a":"two\n"}}`); code != 0 {
			t.Fatal(out)
		}
		err := poll(patience, func() (bool, string) {
			out, _ := k.run(t, "", "exec", "groups", "--", "sh", "-c", "cat /c/a; stat -L -c '%u:%g %a' /c/a")
			return out == "two\n0:2000 440\n", out
		})
		if err != nil {
			t.Error(err)
		}
		k.ok(t, "delete pod --all --timeout=2m")
		empty(t, filepath.Join(u.dir, "nodes", nodeOf(t, u.dir), "pods-data"))
	})
	t.Run("one", func(t *testing.T) {
		m := newMachine(t)
		m.uid = unprivileged
		_, k := begin(t, m, "0")
		k.ok(t, "wait --for=condition=Ready pod/groups --timeout=2m")
		out, _ := k.run(t, "", "exec", "groups", "--", "sh", "-c", "stat -L -c %u:%g /e /c/a; cat /c/a /s/a; touch /e/f")
		if want := "0:0\n0:0\none\nsecret\n"; out != want {
			t.Errorf("the pod sees\n%s\nwant\n%s", out, want)
		}
		err := poll(patience, func() (bool, string) {
			out := k.ok(t, "get events --field-selector=reason=NotEnforced -o jsonpath={.items[*].message}")
			return strings.Contains(out, "fsGroup 2000 is not enforced") &&
				strings.Contains(out, "groups 2000, 3000 are not given"), out
		})
		if err != nil {
			t.Error(err)
		}
	})
}

const groupsManifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {a: "one\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: a}
stringData: {a: "secret\n"}
---
apiVersion: v1
kind: Pod
metadata: {name: groups}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: USER, fsGroup: 2000, supplementalGroups: [3000]}
  containers:
  - name: c
    image: localhost/owners:1
    volumeMounts: [{name: e, mountPath: /e}, {name: c, mountPath: /c}, {name: s, mountPath: /s}]
  volumes:
  - {name: e, emptyDir: {}}
  - {name: c, configMap: {name: a, defaultMode: 0400}}
  - {name: s, secret: {secretName: a, defaultMode: 0400}}
`
