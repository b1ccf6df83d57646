package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Pod names the groups of a sandbox, those included that are made only if a container needs them. It makes nothing.
func (m *Manager) Pod(sandboxID string) sys.Cgroup {
	name := "monoplane-" + short(sandboxID)
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

// LimitPod sets the limits of a pod as a whole, and says which of them are not enforced: those that cannot be set, and
// those that do not hold for one of its members, which is in no group for them.
func (m *Manager) LimitPod(pod sys.Cgroup, members []sys.Cgroup, lim Limits) []string {
	var warnings []string
	for _, s := range lim.settings() {
		if err := m.limitPod(pod, members, s); err != nil && s.what != "" {
			warnings = append(warnings, s.what+" is not enforced: "+err.Error())
		}
	}
	return warnings
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Update changes the limits of a container's groups.
func (m *Manager) Update(pod, g sys.Cgroup, lim Limits) []string {
	var warnings []string
	for _, s := range lim.settings() {
		if err := m.change(pod, g, s); err != nil {
			warnings = append(warnings, s.what+" is not enforced: "+err.Error())
		}
	}
	return warnings
}

// short keeps directory names readable; 80 random bits are as good as all of them.
func short(id string) string {
	if len(id) > 20 {
		return id[:20]
	}
	return id
}
