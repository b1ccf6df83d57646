package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Of a directory that was removed after all that used it was killed, the next runtime of the machine leaves nothing:
// neither what a shim still runs nor what a dead one has left. Pods of directories that are there run on, whether a
// runtime is connected to them or not, and so do those of a runtime that lives and whose directory was removed.
//
// spec: SAFE-6
func TestRemovedDirectory(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		neighbour := n.second(filepath.Join(t.TempDir(), "neighbour"))
		asleep := n.second(filepath.Join(t.TempDir(), "asleep"))
		homeless := n.second(filepath.Join(t.TempDir(), "homeless"))
		var spared, shims []int
		for i, m := range []*node{neighbour, asleep, homeless} {
			sb := m.sandbox(fmt.Sprint("spared", i))
			spared = append(spared, m.shimPID(sb), m.pid(m.run(sb, containerConfig("c", "sleep", "1000"))))
		}
		if err := asleep.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(homeless.dir); err != nil {
			t.Fatal(err)
		}

		var dead []int
		var groups []string
		for i := range 4 {
			sb := n.sandbox(fmt.Sprint("dead", i))
			orphan := filepath.Join(t.TempDir(), "orphan")
			id := n.run(sb, containerConfig("c", "/bin/sh", "-c",
				"(setsid sleep 1000 & echo $! >"+orphan+"); exec sleep 1000"))
			shims = append(shims, n.shimPID(sb))
			dead = append(dead, n.pid(id), readPID(t, orphan))
			n.mu.RLock()
			group := n.sandboxes[sb].rec.group
			n.mu.RUnlock()
			groups = append(append(groups, group.Unified), group.V1...)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range shims[:2] {
			send(t, pid, syscall.SIGKILL)
		}
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}

		next := n.second(filepath.Join(t.TempDir(), "next"))
		for _, pid := range shims {
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "what is left ends", func() bool { return !slices.ContainsFunc(dead, alive) })
		eventually(t, "cgroups are removed", func() bool {
			return !slices.ContainsFunc(groups, func(dir string) bool { return dir != "" && !isAbsent(dir) })
		})
		eventually(t, "claims are removed", func() bool {
			claims, err := os.ReadDir(next.claims)
			return err == nil && len(claims) == len(spared)/2
		})
		for _, pid := range spared {
			if !alive(pid) {
				t.Errorf("process %d of a neighbour was ended", pid)
			}
		}
		if err := homeless.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Wait4(spared[4], nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the pod of a runtime without a directory ends after it", func() bool { return !alive(spared[5]) })
	})
}
