//go:build rootonly

package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// answers shows that pods of a cluster reach a Service by its name, and the machine by its port.
func (u *imageCluster) answers(t *testing.T) {
	t.Helper()
	k := u.kubectl(t)
	if out, code := k.run(t, webManifest, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	k.ok(t, "rollout status deployment/web --timeout=2m")
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")
	port := k.ok(t, "get service web -o jsonpath={.spec.ports[0].nodePort}")
	eventually(t, "a pod reaches the Service", func() (bool, string) {
		out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", "echo | nc -w 5 web 80")
		return strings.HasPrefix(out, "web-"), out
	})
	eventually(t, "the machine reaches the node port", func() (bool, string) {
		out := u.machine.run(t, "busybox", "sh", "-c", "echo | busybox nc -w 5 127.0.0.1 "+port+" || true")
		return strings.HasPrefix(out, "web-"), out
	})
}

// A machine that has IPv6 switched off runs images as any other.
//
// spec: NET-1
func TestRootMachineWithoutIPv6(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		for _, which := range []string{"all", "default", "lo"} {
			m.run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6")
		}
		u := m.imageCluster(t)
		u.begin(t)
		u.answers(t)
		u.down(t)
	})
}

// Clusters of root and of two other users on one machine have nothing to do with each other: all of them work, and the
// end of one changes nothing for the others.
//
// spec: NET-1, CTR-6
func TestRootClustersOfThreeUsers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var all []*imageCluster
	for _, uid := range []int{0, unprivileged, unprivileged + 1} {
		of := *m
		of.uid = uid
		u := of.imageCluster(t)
		u.begin(t)
		u.answers(t)
		all = append(all, u)
	}
	for len(all) > 0 {
		for _, u := range all {
			u.answers(t)
		}
		all[0].down(t)
		all = all[1:]
	}
	if links := m.run(t, "ip", "-o", "link"); strings.Count(links, "\n") != 1 {
		t.Errorf("links are left:\n%s", links)
	}
}

// A server that is killed before it is ready leaves its link on the machine. The next one does not take the link for
// somebody else's: it has the range of the first.
//
// spec: NET-1
func TestRootRangeOfKilledStart(t *testing.T) {
	t.Parallel()
	u := newMachine(t).imageCluster(t)
	first := exec.Command(u.monoplane, upArgs(u.dir, "--runtime", "oci", "--image-dir", u.images)...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	err := poll(patience, func() (bool, string) {
		links, err := insideOf(u.machine, net.Interfaces)
		return len(links) > 1, fmt.Sprint(links, err)
	})
	if err := errors.Join(err, first.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // It was killed.

	u.begin(t)
	const want = "10.244.0.0/16"
	if kept, err := os.ReadFile(filepath.Join(u.dir, "pod-range")); err != nil || string(kept) != want+"\n" {
		t.Errorf("the range is %q, %v, want %s", kept, err, want)
	}
	u.answers(t)
	u.down(t)
}

// Where a setting of the kernel keeps a user from making namespaces, `monoplane up` names it, and runs what needs
// none.
//
// spec: CLI-2, CLI-4
func TestRootUserWithoutNamespaces(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("newuidmap"); err != nil {
		t.Skip("newuidmap is not installed (make deps)")
	}
	home := mine(t, unprivileged, filepath.Dir(shortDir(t)))
	program, script := filepath.Join(home, "monoplane"), filepath.Join(t.TempDir(), "monoplane")
	if out, err := exec.Command("cp", binary(t, "monoplane"), program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ids := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(ids, []byte("root:0:100000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const text = `#!/bin/sh
exec unshare -m sh -c 'mount --bind IDS /etc/subuid && mount --bind IDS /etc/subgid &&
exec unshare -U --map-users=0,0,100000 --map-groups=0,0,100000 sh -c "
echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --reuid=USER --regid=USER --clear-groups PROGRAM \"\$@\"
" sh "$@"' sh "$@"
`
	as := strings.NewReplacer("IDS", ids, "USER", fmt.Sprint(unprivileged), "PROGRAM", program).Replace(text)
	if err := os.WriteFile(script, []byte(as), 0o700); err != nil {
		t.Fatal(err)
	}
	const setting = "user.max_user_namespaces"
	refused(t, runProgram(t, nil, script, upArgs(filepath.Join(home, "no"), "--runtime", "oci")...),
		"--runtime=oci: containers cannot be made here: ", setting)
	c, err := start(script, filepath.Join(home, "data"), "--runtime", "auto")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
	if out := c.stderr.String(); !strings.Contains(out, `Pods can have image "host" only`) ||
		!strings.Contains(out, setting) {
		t.Errorf("it is not said why images cannot be run: %q", out)
	}
	k := c.kubectl(t, "default")
	k.ok(t, "run hello --image=host --command -- sleep 600")
	k.ok(t, "wait --for=condition=Ready pod/hello --timeout=2m")
}
