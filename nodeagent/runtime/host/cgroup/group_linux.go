package cgroup

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// podPrefix begins the name of the group of every pod.
const podPrefix = "monoplane-"

// Pod names the groups of a sandbox, those included that are made only if a container needs them. It makes nothing.
func (m *Manager) Pod(sandboxID string) sys.Cgroup {
	name := podPrefix + short(sandboxID)
	var g sys.Cgroup
	if m.unified != "" {
		g.Unified = filepath.Join(m.unified, name)
	}
	seen := map[string]bool{}
	for _, c := range controllers {
		if dir := m.v1[c]; dir != "" && !seen[dir] {
			seen[dir] = true
			g.V1 = append(g.V1, filepath.Join(dir, name))
		}
	}
	for _, dir := range m.hierarchies {
		if !seen[dir] {
			seen[dir] = true
			g.V1 = append(g.V1, filepath.Join(dir, name))
		}
	}
	return g
}

// MakePod makes the pod's cgroup2 directory, and the shim's in it, which it returns; "" when there is no cgroup2.
func (m *Manager) MakePod(pod sys.Cgroup) (shim string, err error) {
	if pod.Unified == "" {
		return "", nil
	}
	if err := os.Mkdir(pod.Unified, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	shim = filepath.Join(pod.Unified, "shim")
	if err := os.Mkdir(shim, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return shim, nil
}

// MakeContainer makes a container's groups, and sets its limits as far as it goes. The container has a part in the
// limits of its pod as a whole, which LimitPod has set.
func (m *Manager) MakeContainer(
	pod sys.Cgroup, containerID string, lim, whole Limits,
) (sys.Cgroup, []string, error) {
	var g sys.Cgroup
	if pod.Unified != "" {
		g.Unified = filepath.Join(pod.Unified, short(containerID))
		if err := os.Mkdir(g.Unified, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return sys.Cgroup{}, nil, err
		}
	}
	var warnings []string
	for _, s := range lim.settings() {
		dir, err := m.apply(pod, g.Unified, short(containerID), s)
		if err != nil {
			warnings = append(warnings, s.what+" is not enforced: "+err.Error())
			continue
		}
		if dir != "" && !contains(g.V1, dir) {
			g.V1 = append(g.V1, dir)
		}
	}
	for _, s := range whole.settings() {
		podDir := m.limitedV1(pod, s)
		if dir := filepath.Join(podDir, short(containerID)); podDir != "" && !contains(g.V1, dir) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return sys.Cgroup{}, nil, err
			}
			g.V1 = append(g.V1, dir)
		}
	}
	return g, warnings, nil
}

// LimitPod sets the limits of a pod as a whole, and says which of them are not enforced: those for which pods have no
// cgroup here; and, as failures, those that cannot be set, and those that do not hold for one of its members, which is
// in no group for them. What it was given to keep before and does not ask for any more, it loses.
func (m *Manager) LimitPod(pod sys.Cgroup, members []sys.Cgroup, lim Limits) (unenforced, failures []string) {
	if pod.Unified != "" && hasController(pod.Unified, memory) {
		lim = lim.complete()
	}
	for _, s := range lim.settings() {
		why, err := m.limitPod(pod, members, s)
		s.tell(why, &unenforced)
		s.tell(err, &failures)
	}
	if err := m.Reserve(); err != nil && (lim.MemoryMin != "" || lim.MemoryLow != "") {
		failures = append(failures, "the memory that pods reserve cannot be reserved for all of them: "+err.Error())
	}
	return unenforced, failures
}

// tell adds to a list that the setting is not enforced, unless why is nil, or nobody is to be told of it.
func (s setting) tell(why error, list *[]string) {
	if why != nil && s.what != "" {
		*list = append(*list, s.what+" is not enforced: "+why.Error())
	}
}

// Reserve gives a parent that was configured, and so has nothing but pods, what these have reserved together: the
// kernel keeps no more for a group than for the one above it. A group that somebody else has made for this process is
// left as it is.
func (m *Manager) Reserve() error {
	if len(m.above) == 0 || !hasController(m.unified, memory) {
		return nil
	}
	m.reserving.Lock()
	defer m.reserving.Unlock()
	for _, file := range []string{"memory.min", "memory.low"} {
		pods, err := filepath.Glob(filepath.Join(m.unified, podPrefix+"*", file))
		if err != nil {
			return err
		}
		if err := writeAll(m.unified, []fileValue{{file, sum(pods)}}); err != nil {
			return err
		}
	}
	return nil
}

// sum adds up what files say. One that has gone meanwhile says nothing.
func sum(files []string) string {
	total := uint64(0)
	for _, name := range files {
		b, _ := os.ReadFile(name)
		text := strings.TrimSpace(string(b))
		n, _ := strconv.ParseUint(text, 10, 63)
		if total += n; text == Unbounded || total > math.MaxInt64 {
			return Unbounded
		}
	}
	return strconv.FormatUint(total, 10)
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Update changes the limits of a container's groups. It says which are not enforced because pods have no cgroup for
// them here, as MakeContainer has for the container, and which could not be changed.
func (m *Manager) Update(pod, g sys.Cgroup, lim Limits) (unenforced, failures []string) {
	for _, s := range lim.settings() {
		why, err := m.change(pod, g, s)
		s.tell(why, &unenforced)
		s.tell(err, &failures)
	}
	return unenforced, failures
}

// short keeps directory names readable; 80 random bits are as good as all of them.
func short(id string) string {
	if len(id) > 20 {
		return id[:20]
	}
	return id
}
