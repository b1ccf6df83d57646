package nodeagent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/eviction"
)

// emptyDirs is where the volumes of a pod are that live as long as the pod, below the pod's directory.
const emptyDirs = "volumes/kubernetes.io~empty-dir"

// measureDisk adds what the pod's logs and volumes take on the node's disk. What lies on another file system, such as
// memory, does not count. The error says what could not be read.
func (a *Agent) measureDisk(ctx context.Context, p *eviction.Pod) (failed error) {
	j := job{agent: a, pod: p.Pod}
	if dir := j.podDir(); dir != "" {
		for _, c := range slices.Concat(p.Pod.GetSpec().GetContainers(), p.Pod.GetSpec().GetInitContainers()) {
			size, err := diskuse.Of(ctx, filepath.Join(dir, c.GetName()))
			u := p.Containers[c.GetName()]
			u.Disk, u.Inodes = u.Disk+size.Bytes, u.Inodes+size.Inodes
			p.Containers[c.GetName()], failed = u, errors.Join(failed, err)
		}
	}
	if home := j.homeDir(); home != "" {
		size, err := a.cfg.Measure(ctx, filepath.Join(home, emptyDirs))
		p.Usage.Disk, p.Usage.Inodes, failed = size.Bytes, size.Inodes, errors.Join(failed, err)
	}
	return failed
}

// orphanAge is how long the logs of a pod stay of which nothing else is left: their collectors may be behind.
const orphanAge = 10 * time.Minute

// removeOrphanLogs removes the logs of pods of which neither the API nor the runtime knows anything: an agent that
// died while it removed a pod has left them.
func (a *Agent) removeOrphanLogs(ctx context.Context) {
	entries, err := os.ReadDir(a.cfg.PodLogDir)
	if a.cfg.PodLogDir == "" || err != nil || len(entries) == 0 {
		return
	}
	containers, sandboxes, err := a.listRuntime(ctx, nil)
	if err != nil {
		return
	}
	known := make(map[string]bool)
	for _, c := range containers {
		known[c.GetLabels()[criconfig.LabelPodUID]] = true
	}
	for _, s := range sandboxes {
		known[s.GetLabels()[criconfig.LabelPodUID]] = true
	}
	for _, e := range entries {
		_, uid, ok := cutLast(e.Name(), "_")
		info, err := e.Info()
		if !ok || err != nil || now().Sub(info.ModTime()) < orphanAge {
			continue
		}
		if known[uid] || a.worker(uid) != nil || a.static.holds(uid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(a.cfg.PodLogDir, e.Name())); err != nil {
			a.cfg.Logger.Warn("the logs of a pod that is gone cannot be removed", "uid", uid, "error", err)
		}
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
