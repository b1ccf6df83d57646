// Package podcgroup makes the control groups in which a runtime puts the containers of pods, and sets what the pod as
// a whole may use (INIT-8, QOS-3):
//
//	monoplane                 all pods
//	monoplane/podUID          a guaranteed pod
//	monoplane/burstable/podUID
//	monoplane/besteffort/podUID
//
// A runtime that lets systemd manage groups knows the same ones as slices: monoplane-burstable-podUID.slice. Processor
// time is shared between the classes as their pods request it. What pods reserve of memory is reserved in the groups
// above too, but not in those of systemd: there it holds where these are given as much (MemoryMin, MemoryLow).
//
// Both versions of cgroups are understood. What cannot be set is an error; the caller decides whether the pod runs
// without. Groups are made anew when they are missing, and removing what is not there is no error.
package podcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/rules/qos"
)

const (
	base      = "monoplane"
	burstable = "burstable"
	effort    = "besteffort"
	podPrefix = "pod"
	dirMode   = 0o755
)

// Mount is where the machine has its control groups.
const Mount = "/sys/fs/cgroup"

// Groups are those of a node's pods. It is safe for concurrent use.
type Groups struct {
	root    string
	systemd bool
	v2      bool
	// command tells systemd.
	command func(ctx context.Context, args ...string) error
	// mu makes one change at a time of what classes share.
	mu sync.Mutex
}

// New returns the groups below root, where all control groups are mounted. Command, which is Systemctl but in tests,
// is how systemd is told where the runtime has it manage them; nil where it does not.
func New(root string, command func(ctx context.Context, args ...string) error) *Groups {
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	return &Groups{root: root, systemd: command != nil, v2: err == nil, command: command}
}

// OfMachine returns the groups of this machine. Systemd says that the runtime has systemd manage them.
func OfMachine(systemd bool) *Groups {
	if systemd {
		return New(Mount, Systemctl)
	}
	return New(Mount, nil)
}

// Systemctl runs the command of that name.
func Systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput() //nolint:gosec // names are made here
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// names are the groups from the one of all pods down to the pod's.
func names(uid, class string) []string {
	switch class {
	case qos.Burstable:
		return []string{base, burstable, podPrefix + uid}
	case qos.BestEffort:
		return []string{base, effort, podPrefix + uid}
	default:
		return []string{base, podPrefix + uid}
	}
}

// Parent returns what a runtime is told of where a pod's containers belong.
func (g *Groups) Parent(uid, class string) string {
	if g.systemd {
		return slice(uid, class)
	}
	return "/" + strings.Join(names(uid, class), "/")
}

// slice returns the pod's group as systemd names it, for which a dash is what a slash is for others.
func slice(uid, class string) string {
	return strings.Join(names(strings.ReplaceAll(uid, "-", "_"), class), "-") + ".slice"
}

// Prepare makes a pod's group before there is a sandbox, with its settings. Systemd makes those that it manages
// itself, and takes settings once they are there: see Settle.
func (g *Groups) Prepare(uid, class string, r *runtimeapi.LinuxContainerResources) error {
	if g.systemd {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	path := names(uid, class)
	for i := range path {
		if err := g.mkdir(filepath.Join(path[:i+1]...)); err != nil {
			return err
		}
	}
	if err := g.set(filepath.Join(path...), r); err != nil {
		return err
	}
	return errors.Join(g.share(class), g.reserve(class))
}

// Settle sets what a pod may use where that could not be before its sandbox was there.
func (g *Groups) Settle(ctx context.Context, uid, class string, r *runtimeapi.LinuxContainerResources) error {
	if !g.systemd {
		return nil
	}
	args := []string{"set-property", "--runtime", slice(uid, class),
		"CPUWeight=" + strconv.FormatInt(weight(r.GetCpuShares()), 10)}
	if r.GetCpuQuota() > 0 {
		percent := r.GetCpuQuota() * 100 / max(1, r.GetCpuPeriod())
		args = append(args, "CPUQuota="+strconv.FormatInt(max(1, percent), 10)+"%")
	}
	if r.GetMemoryLimitInBytes() > 0 {
		args = append(args, "MemoryMax="+strconv.FormatInt(r.GetMemoryLimitInBytes(), 10))
	}
	for _, s := range [...]struct{ setting, property string }{{"memory.min", "MemoryMin"}, {"memory.low", "MemoryLow"},
		{maxPIDs, "TasksMax"}} {
		if v := r.GetUnified()[s.setting]; v != "" {
			args = append(args, s.property+"="+v)
		}
	}
	return g.command(ctx, args...)
}

// Remove removes a pod's group, which has no processes any more. A runtime may have made parts of it for controllers
// of which this package knows nothing.
func (g *Groups) Remove(uid, class string) error {
	if g.systemd {
		return nil // systemd removes a slice with nothing in it
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	path := filepath.Join(names(uid, class)...)
	var errs []error
	for _, h := range g.hierarchies() {
		if err := os.Remove(filepath.Join(g.root, h, path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, g.share(class), g.reserve(class))...)
}

// hierarchies returns the directories below the root that have groups: the root itself, or those of the controllers.
func (g *Groups) hierarchies() []string {
	if g.v2 {
		return []string{""}
	}
	entries, _ := os.ReadDir(g.root) // without it nothing was made either
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// controllers are those whose settings pods need.
var controllers = [...]string{"cpu", "memory", "hugetlb", "pids"}

// maxPIDs limits processes and threads, by the same name in both versions.
const maxPIDs = "pids.max"

// mkdir makes a group, and in cgroup2 lets it have what the group above has.
func (g *Groups) mkdir(group string) error {
	if g.v2 {
		above := filepath.Join(g.root, filepath.Dir(group))
		have, err := os.ReadFile(filepath.Join(above, "cgroup.controllers")) //nolint:gosec // below the root
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(string(have)) {
			// One that cannot be had is missed by who has a setting for it.
			_ = write(filepath.Join(above, "cgroup.subtree_control"), "+"+name)
		}
		return os.MkdirAll(filepath.Join(g.root, group), dirMode)
	}
	for _, c := range controllers {
		if _, err := os.Stat(filepath.Join(g.root, c)); err != nil {
			continue // this machine has none
		}
		if err := os.MkdirAll(filepath.Join(g.root, c, group), dirMode); err != nil {
			return err
		}
	}
	return nil
}

// set writes the settings of a group.
func (g *Groups) set(group string, r *runtimeapi.LinuxContainerResources) error {
	type setting struct{ controller, file, value string }
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	var all []setting
	if g.v2 {
		quota, memory := "max", "max"
		if r.GetCpuQuota() > 0 {
			quota = number(r.GetCpuQuota())
		}
		if r.GetMemoryLimitInBytes() > 0 {
			memory = number(r.GetMemoryLimitInBytes())
		}
		all = []setting{{"", "cpu.weight", number(weight(r.GetCpuShares()))},
			{"", "cpu.max", quota + " " + number(max(r.GetCpuPeriod(), 100_000))}, {"", "memory.max", memory}}
		unified := make(map[string]string, len(reservations))
		for _, file := range reservations {
			unified[file] = "0" // which takes away what was reserved before
		}
		maps.Copy(unified, r.GetUnified())
		for k, v := range unified {
			all = append(all, setting{"", k, v})
		}
	} else {
		quota, memory := int64(-1), int64(-1)
		if r.GetCpuQuota() > 0 {
			quota = r.GetCpuQuota()
		}
		if r.GetMemoryLimitInBytes() > 0 {
			memory = r.GetMemoryLimitInBytes()
		}
		all = []setting{{"cpu", "cpu.shares", number(max(2, r.GetCpuShares()))},
			{"cpu", "cpu.cfs_period_us", number(max(r.GetCpuPeriod(), 100_000))}, {"cpu", "cpu.cfs_quota_us", number(quota)},
			{"memory", "memory.limit_in_bytes", number(memory)}}
		if n := r.GetUnified()[maxPIDs]; n != "" {
			all = append(all, setting{"pids", maxPIDs, n})
		}
	}
	for _, h := range r.GetHugepageLimits() {
		s := setting{"", "hugetlb." + h.GetPageSize() + ".max", strconv.FormatUint(h.GetLimit(), 10)}
		if !g.v2 {
			s.controller, s.file = "hugetlb", "hugetlb."+h.GetPageSize()+".limit_in_bytes"
		}
		all = append(all, s)
	}
	var errs []error
	for _, s := range all {
		err := write(filepath.Join(g.root, s.controller, group, s.file), s.value)
		// A machine without the controller limits nothing by it; only a limit is missed then.
		if errors.Is(err, fs.ErrNotExist) && (s.value == "max" || s.value == "-1" || s.value == "0" ||
			strings.HasPrefix(s.value, "max ") || strings.HasPrefix(s.file, "cpu.weight")) {
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// share gives a class as much of the processors as its pods request together, and next to nothing to those that
// request nothing.
func (g *Groups) share(class string) error {
	controller, file, least, most := "cpu", "cpu.shares", int64(2), int64(262144)
	if g.v2 {
		controller, file, least, most = "", "cpu.weight", 1, 10000
	}
	sum := least
	var dir string
	switch class {
	case qos.BestEffort:
		dir = filepath.Join(g.root, controller, base, effort)
	case qos.Burstable:
		dir = filepath.Join(g.root, controller, base, burstable)
		pods, _ := filepath.Glob(filepath.Join(dir, podPrefix+"*", file)) // the pattern is well-formed
		for _, path := range pods {
			text, err := os.ReadFile(path) //nolint:gosec // below the root
			n, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && parseErr == nil { // one that goes meanwhile does not count
				sum += n
			}
		}
	default:
		return nil
	}
	err := write(filepath.Join(dir, file), strconv.FormatInt(min(sum, most), 10))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is no such controller, or the class has had no pod yet
	}
	return err
}

// reservations are the settings of cgroup2 that keep memory from being reclaimed.
var reservations = [...]string{"memory.min", "memory.low"}

// reserve gives the groups above a class's pods what those below them have reserved together: the kernel keeps no more
// for a group than for the one above it.
func (g *Groups) reserve(class string) error {
	if !g.v2 {
		return nil
	}
	above := names("", class)
	var errs []error
	for i := len(above) - 1; i > 0; i-- {
		dir := filepath.Join(g.root, filepath.Join(above[:i]...))
		for _, file := range reservations {
			sum := int64(0)
			below, _ := filepath.Glob(filepath.Join(dir, "*", file)) // the pattern is well-formed
			for _, path := range below {
				text, _ := os.ReadFile(path) //nolint:gosec // below the root; one that goes meanwhile reserves nothing
				n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
				sum += n
			}
			err := write(filepath.Join(dir, file), strconv.FormatInt(sum, 10))
			if !errors.Is(err, fs.ErrNotExist) || sum > 0 { // as where there is no such controller
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// weight is the cgroup2 word for so many shares of cgroup v1.
func weight(shares int64) int64 {
	return 1 + (min(max(shares, 2), 262144)-2)*9999/262142
}

// write writes a setting. The kernel makes the files: one that is missing stays so.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0) //nolint:gosec // below the root
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
