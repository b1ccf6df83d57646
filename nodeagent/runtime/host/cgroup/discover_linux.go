package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Manager knows where groups can be made. The zero Manager makes none.
type Manager struct {
	unified string            // The parent's directory in cgroup2; "" when it is of no use.
	above   []string          // The directories above a configured parent, from the root of cgroup2.
	v1      map[string]string // By controller: the parent's directory.
	why     string            // Why there is no group that can be killed as a whole.

	onlyUnified bool // Whether cgroup2 is mounted, and no hierarchy of cgroup v1.

	// Of DiscoverAll: the parent's path, and its directories in all hierarchies of cgroup v1.
	parent      string
	hierarchies []string

	reserving sync.Mutex // while the parent is given what its pods have reserved
}

// Controllers that limits may need.
const (
	memory  = "memory"
	cpu     = "cpu"
	pids    = "pids"
	cpuset  = "cpuset"
	hugetlb = "hugetlb"
)

var controllers = [...]string{memory, cpu, pids, cpuset, hugetlb}

// Discover looks at what is mounted and writable. parent is a path inside each hierarchy; empty means the group of
// this process.
func Discover(parent string) *Manager {
	m := &Manager{v1: map[string]string{}}
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		m.why = err.Error()
		return m
	}
	own, err := readOwn("/proc/self/cgroup")
	if err != nil {
		m.why = err.Error()
		return m
	}
	m.why = "no cgroup2 is mounted"
	m.onlyUnified = len(mounts) > 0
	for _, mt := range mounts {
		m.onlyUnified = m.onlyUnified && mt.unified
		if mt.unified {
			dir, err := mt.dir(own[""], parent)
			if err == nil {
				err = usable(dir)
			}
			if err != nil {
				m.why = err.Error()
				continue
			}
			m.unified, m.why = dir, ""
			if parent != "" {
				m.above = directories(mt.point, dir)
			}
			continue
		}
		for _, c := range controllers {
			if dir, err := mt.dir(own[c], parent); err == nil && mt.controllers[c] && unix.Access(dir, unix.W_OK) == nil {
				m.v1[c] = dir
			}
		}
	}
	return m
}

// directories are those from top to the one that holds dir.
func directories(top, dir string) []string {
	if dir == top {
		return nil
	}
	dir = filepath.Dir(dir)
	return append(directories(top, dir), dir)
}

// Killable tells whether groups can be killed as a whole and, if not, why.
func (m *Manager) Killable() (ok bool, why string) { return m.unified != "", m.why }

type mount struct {
	root, point string
	unified     bool
	controllers map[string]bool
}

// dir is where the group with the path group, or parent if given, is seen below this mount.
func (mt mount) dir(group, parent string) (string, error) {
	if parent != "" {
		return filepath.Join(mt.point, path.Clean("/"+parent)), nil
	}
	if path.Base(group) == Server {
		group = path.Dir(group)
	}
	if group == "" {
		return "", errors.New("this process is in no group of the hierarchy")
	}
	rest, ok := strings.CutPrefix(group, strings.TrimSuffix(mt.root, "/"))
	if !ok || strings.HasPrefix(group, "/..") {
		return "", fmt.Errorf("the group %s of this process is not below what is mounted at %s", group, mt.point)
	}
	return filepath.Join(mt.point, rest), nil
}

// Server is the name of the group that the server is in where it has given up the one above it to its pods. A service
// manager can start the server in a group of this name, too (systemd: DelegateSubgroup).
const Server = "monoplane-server"

// MakeRoom moves this process from the group that it has been given into one below, where it is alone in it: a group
// of cgroup2 that holds processes cannot hand controllers down to those of pods. It does nothing where there are no
// controllers to hand down, or pods have another parent.
func (m *Manager) MakeRoom() error {
	if m.unified == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(m.unified, "cgroup.controllers"))
	if err != nil || len(strings.Fields(string(text))) == 0 {
		return err
	}
	self := strconv.Itoa(os.Getpid())
	if text, err = os.ReadFile(filepath.Join(m.unified, "cgroup.procs")); err != nil ||
		strings.TrimSpace(string(text)) != self {
		return err
	}
	dir := filepath.Join(m.unified, Server)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(self), 0)
}

// usable makes a group and removes it again.
func usable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	probe, err := os.MkdirTemp(dir, "monoplane-probe-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(probe) }() // an empty group does no harm
	if _, err := os.Stat(filepath.Join(probe, "cgroup.kill")); err != nil {
		return errors.New("this kernel has no cgroup.kill (Linux 5.14 has)")
	}
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		return fmt.Errorf("%s/cgroup.procs: %w", dir, err)
	}
	return nil
}

func readMounts(name string) ([]mount, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []mount
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// ID parent major:minor root point options [tags] - type source super-options
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		mt := mount{root: l[3], point: l[4], unified: r[0] == "cgroup2", controllers: map[string]bool{}}
		if !mt.unified && r[0] != "cgroup" {
			continue
		}
		for _, o := range strings.Split(r[2], ",") {
			mt.controllers[o] = true
		}
		out = append(out, mt)
	}
	return out, lines.Err()
}

// readOwn returns this process's group by controller; "" is the cgroup2 one.
func readOwn(name string) (map[string]string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, c := range strings.Split(parts[1], ",") {
			out[c] = parts[2]
		}
	}
	return out, nil
}

// DiscoverAll is as Discover, for containers that are in a group of their own in every hierarchy of cgroup v1.
func DiscoverAll(parent string) *Manager {
	m := Discover(parent)
	m.parent = path.Clean("/" + parent)
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return m
	}
	for _, mt := range mounts {
		if mt.unified {
			continue
		}
		m.hierarchies = append(m.hierarchies, filepath.Join(mt.point, m.parent))
		for _, c := range controllers {
			if dir := filepath.Join(mt.point, m.parent); mt.controllers[c] && os.MkdirAll(dir, 0o755) == nil {
				m.v1[c] = dir
			}
		}
	}
	return m
}

// IsUnified tells whether the machine has nothing but cgroup2.
func (m *Manager) IsUnified() bool { return m.onlyUnified }

// mountOfUnified is where a machine that has nothing but cgroup2 has it.
const mountOfUnified = "/sys/fs/cgroup/"

// PathOf is the path of a container's group inside every hierarchy; empty where it has none that libcontainer, which
// does not look elsewhere, would find.
func (m *Manager) PathOf(pod sys.Cgroup, containerID string) string {
	if below, ok := strings.CutPrefix(pod.Unified, mountOfUnified); ok && m.parent == "" && m.onlyUnified {
		return path.Join("/", below, short(containerID))
	}
	name := ""
	if pod.Unified != "" {
		name = filepath.Base(pod.Unified)
	} else if len(pod.V1) > 0 {
		name = filepath.Base(pod.V1[0])
	}
	if name == "" || m.parent == "" {
		return ""
	}
	return path.Join(m.parent, name, short(containerID))
}

// Spread adds to a container's group its directories in the hierarchies that limit nothing.
func (m *Manager) Spread(pod sys.Cgroup, containerID string, g sys.Cgroup) sys.Cgroup {
	for _, d := range pod.V1 {
		if dir := filepath.Join(d, short(containerID)); !contains(g.V1, dir) {
			g.V1 = append(g.V1, dir)
		}
	}
	return g
}
