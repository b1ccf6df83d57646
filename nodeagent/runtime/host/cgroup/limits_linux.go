package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Limits are those of one container, or of a pod. Zero means no limit.
type Limits struct {
	MemoryBytes int64
	// MemoryMin and MemoryLow are kept from reclaim, MemoryHigh is what is reclaimed at, and SwapMax how much may be
	// swapped out, which is nothing by itself where MemoryBytes is set. Only cgroup2 has them, and each is in its words:
	// a number of bytes, of which 0 is one, or Unbounded. Empty means that nobody has asked for it.
	MemoryMin, MemoryLow, MemoryHigh, SwapMax string
	// CPUQuota of every CPUPeriod, both in microseconds; a period of 0 means 100 000.
	CPUQuota, CPUPeriod int64
	// CPUShares is the weight of cgroup v1, 2 to 262144.
	CPUShares int64
	PIDs      int64
	// CPUs is a list such as "0-3,7".
	CPUs string
	// HugePages are bytes by the size of the pages in the kernel's words, such as "2MB".
	HugePages map[string]int64
}

// Unbounded is what cgroup2 calls all that there is.
const Unbounded = "max"

// ofMemory is a setting of cgroup2 alone, and the value that the kernel gives it, which asks for nothing.
type ofMemory struct {
	file    string
	of      func(*Limits) *string
	initial string
}

// In this order they are written, before the limit: a group that is to have less is made smaller by reclaim first, and
// only what that has left may be killed for the limit.
var ofMemories = [...]ofMemory{
	{"memory.min", func(l *Limits) *string { return &l.MemoryMin }, "0"},
	{"memory.low", func(l *Limits) *string { return &l.MemoryLow }, "0"},
	{"memory.high", func(l *Limits) *string { return &l.MemoryHigh }, Unbounded},
}

// complete returns the limits with what the kernel has where nobody has asked for anything.
func (l Limits) complete() Limits {
	for _, m := range ofMemories {
		*m.of(&l) = cmp.Or(*m.of(&l), m.initial)
	}
	return l
}

// Split returns the limits that are those of was, and the others, among which is that something of was is not asked
// for any more. A limit, also that of swap, stays if no other one takes its place.
func (l Limits) Split(was Limits) (same, others Limits) {
	same, others = l, l
	for _, f := range [...]struct {
		equal        bool
		same, others *int64
	}{
		{l.MemoryBytes == was.MemoryBytes && l.SwapMax == was.SwapMax, &same.MemoryBytes, &others.MemoryBytes},
		{l.CPUQuota == was.CPUQuota && l.CPUPeriod == was.CPUPeriod, &same.CPUQuota, &others.CPUQuota},
		{l.CPUShares == was.CPUShares, &same.CPUShares, &others.CPUShares},
		{l.PIDs == was.PIDs, &same.PIDs, &others.PIDs},
	} {
		if f.equal {
			*f.others = 0
		} else {
			*f.same = 0
		}
	}
	for _, f := range [...]struct {
		equal        bool
		same, others *string
	}{
		{l.MemoryBytes == was.MemoryBytes && l.SwapMax == was.SwapMax, &same.SwapMax, &others.SwapMax},
		{l.CPUs == was.CPUs, &same.CPUs, &others.CPUs},
	} {
		if f.equal {
			*f.others = ""
		} else {
			*f.same = ""
		}
	}
	for _, m := range ofMemories {
		if now := *m.of(&l); now == *m.of(&was) {
			*m.of(&others) = ""
		} else {
			*m.of(&same), *m.of(&others) = "", cmp.Or(now, m.initial)
		}
	}
	return same, others
}

// setting is one limit in the words of both versions. Where what is empty, it is set if that is possible, and nobody
// is told that it is not.
type setting struct {
	what       string
	controller string
	v2, v1     []fileValue
}

type fileValue struct{ file, value string }

// The files about swap are missing where the kernel does not count it.
const (
	swapFile = "memory.swap.max"
	sumFile  = "memory.memsw.limit_in_bytes"
)

func (l Limits) settings() []setting {
	var out []setting
	for _, m := range ofMemories {
		s := setting{m.file, memory, []fileValue{{m.file, *m.of(&l)}}, nil}
		switch s.v2[0].value {
		case "":
			continue
		case m.initial: // which holds wherever it cannot be set
			s.what = ""
		}
		out = append(out, s)
	}
	if l.MemoryBytes > 0 {
		n := strconv.FormatInt(l.MemoryBytes, 10)
		// The limit counts swap too, as elsewhere. In cgroup v1 the sum may never be less than the memory alone, not even
		// between two writes.
		out = append(out, setting{"the memory limit", memory,
			[]fileValue{{"memory.max", n}, {swapFile, cmp.Or(l.SwapMax, "0")}},
			[]fileValue{{sumFile, "-1"}, {"memory.limit_in_bytes", n}, {sumFile, n}}})
	} else if l.SwapMax != "" {
		out = append(out, setting{"the limit of swap", memory, []fileValue{{swapFile, l.SwapMax}}, nil})
	}
	if l.CPUQuota > 0 {
		period := l.CPUPeriod
		if period == 0 {
			period = 100_000
		}
		q, p := strconv.FormatInt(l.CPUQuota, 10), strconv.FormatInt(period, 10)
		out = append(out, setting{"the cpu limit", cpu,
			[]fileValue{{"cpu.max", q + " " + p}}, []fileValue{{"cpu.cfs_period_us", p}, {"cpu.cfs_quota_us", q}}})
	}
	if l.PIDs > 0 {
		n := strconv.FormatInt(l.PIDs, 10)
		out = append(out, setting{"the pids limit", pids, []fileValue{{"pids.max", n}}, []fileValue{{"pids.max", n}}})
	}
	if l.CPUs != "" {
		out = append(out, setting{"the cpu set", cpuset, []fileValue{{"cpuset.cpus", l.CPUs}},
			[]fileValue{{"cpuset.cpus", l.CPUs}}})
	}
	for _, size := range slices.Sorted(maps.Keys(l.HugePages)) {
		n := strconv.FormatInt(l.HugePages[size], 10)
		out = append(out, setting{"the limit of " + size + " huge pages", hugetlb,
			[]fileValue{{"hugetlb." + size + ".max", n}}, []fileValue{{"hugetlb." + size + ".limit_in_bytes", n}}})
	}
	return append(out, l.share()...)
}

// share is a preference, not a limit: it is set where cgroup2 can, and changed in a group of v1 that is there anyway,
// and nobody is warned otherwise.
func (l Limits) share() []setting {
	if l.CPUShares < 2 {
		return nil
	}
	weight := 1 + (min(l.CPUShares, 262144)-2)*9999/262142
	return []setting{{"", cpu, []fileValue{{"cpu.weight", strconv.FormatInt(weight, 10)}},
		[]fileValue{{"cpu.shares", strconv.FormatInt(l.CPUShares, 10)}}}}
}

var (
	errNoController = errors.New("no cgroup with that controller is writable")
	errOnlyUnified  = errors.New("cgroup v1 has no such setting")
)

// apply sets s in cgroup2 if its controller is there, else in cgroup v1, where it makes the directory and returns it.
func (m *Manager) apply(pod sys.Cgroup, unified, name string, s setting) (v1dir string, err error) {
	if unified != "" {
		if err = m.enable(s.controller, filepath.Dir(pod.Unified), pod.Unified); err == nil {
			return "", writeAll(unified, s.v2)
		}
	}
	if s.what == "" {
		return "", nil
	}
	parent := m.v1[s.controller]
	if parent == "" {
		return "", cmp.Or(err, errNoController)
	}
	if s.v1 == nil {
		return "", errOnlyUnified
	}
	podDir := v1Dir(pod, parent)
	if podDir == "" {
		return "", errNoController
	}
	dir := filepath.Join(podDir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if s.controller == cpuset { // A new v1 cpuset is empty, and nothing can join it before it is filled.
		if err := inheritCPUSet(parent, podDir, dir); err != nil {
			return "", err
		}
	}
	return dir, writeAll(dir, s.v1)
}

// limitPod sets s for a pod, in cgroup2 if its controller is there, else in cgroup v1. Where neither can, unenforced
// says why.
func (m *Manager) limitPod(pod sys.Cgroup, members []sys.Cgroup, s setting) (unenforced, err error) {
	if pod.Unified != "" {
		// The containers are handed it too: else the kernel does not say whom of them it has killed for the pod's memory.
		if err = m.enable(s.controller, filepath.Dir(pod.Unified), pod.Unified); err == nil {
			return nil, writeAll(pod.Unified, s.v2)
		}
	}
	dir := v1Dir(pod, m.v1[s.controller])
	if s.what == "" { // A preference is worth no group that nobody else needs.
		if dir == "" || len(m.hierarchies) == 0 {
			return nil, nil
		}
	}
	if dir == "" {
		return cmp.Or(err, errNoController), nil
	}
	if s.v1 == nil && s.what != "" {
		return errOnlyUnified, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, g := range members {
		if s.what != "" && !slices.ContainsFunc(g.V1, func(d string) bool { return filepath.Dir(d) == dir }) {
			return nil, errors.New("a container was started without a cgroup for it")
		}
	}
	return nil, writeAll(dir, s.v1)
}

// limitedV1 is the directory of cgroup v1 in which limitPod has set s; "" if it has not, or in cgroup2.
func (m *Manager) limitedV1(pod sys.Cgroup, s setting) string {
	if s.what == "" || s.v1 == nil || pod.Unified != "" && hasController(pod.Unified, s.controller) {
		return ""
	}
	dir := v1Dir(pod, m.v1[s.controller])
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// change sets s where apply has set it before. Where that could not have, unenforced says why.
func (m *Manager) change(pod, g sys.Cgroup, s setting) (unenforced, err error) {
	if g.Unified != "" && hasController(g.Unified, s.controller) {
		return nil, writeAll(g.Unified, s.v2)
	}
	podDir := v1Dir(pod, m.v1[s.controller])
	if s.v1 == nil && s.what != "" && podDir != "" {
		return errOnlyUnified, nil
	}
	for _, d := range g.V1 {
		if podDir != "" && filepath.Dir(d) == podDir {
			return nil, writeAll(d, s.v1)
		}
	}
	above := filepath.Dir(pod.Unified)
	switch {
	case s.what == "":
		return nil, nil
	case podDir != "", pod.Unified != "" && hasController(above, s.controller):
		return nil, errors.New("the container was started without a cgroup for it")
	case pod.Unified != "":
		return notAvailable(s.controller, above), nil
	default:
		return errNoController, nil
	}
}

func v1Dir(pod sys.Cgroup, parent string) string {
	for _, d := range pod.V1 {
		if parent != "" && filepath.Dir(d) == parent {
			return d
		}
	}
	return ""
}

// enable hands a cgroup2 controller down from each of the directories to those in it: from the parent to the pod, and
// from the pod to its containers. A parent that was configured may lack it: systemd hands from the root down only what
// its own units limit. It takes nothing away from a group whose children are handed it.
func (m *Manager) enable(controller string, dirs ...string) error {
	if len(m.above) > 0 && !hasController(m.unified, controller) {
		dirs = slices.Concat(m.above, dirs)
	}
	for _, dir := range dirs {
		if !hasController(dir, controller) {
			return notAvailable(controller, dir)
		}
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			return err
		}
		if contains(strings.Fields(string(b)), controller) {
			continue
		}
		if err := writeAll(dir, []fileValue{{"cgroup.subtree_control", "+" + controller}}); err != nil {
			return fmt.Errorf(
				"%w (a group that holds processes cannot hand controllers down; another cgroup parent can be configured)", err)
		}
	}
	return nil
}

func notAvailable(controller, dir string) error {
	return fmt.Errorf("the %s controller is not available in %s", controller, dir)
}

func hasController(dir, controller string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && contains(strings.Fields(string(b)), controller)
}

func inheritCPUSet(dirs ...string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(dirs[0], file))
		if err != nil {
			return err
		}
		for _, d := range dirs[1:] {
			now, err := os.ReadFile(filepath.Join(d, file))
			if err == nil && strings.TrimSpace(string(now)) != "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(d, file), b, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeAll(dir string, values []fileValue) error {
	for _, v := range values {
		err := write(filepath.Join(dir, v.file), v.value)
		if errors.Is(err, os.ErrNotExist) && (v.file == swapFile || v.file == sumFile) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes a setting. It does not ask for a file to be made: where one is missing the kernel would answer that
// this is not permitted.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
