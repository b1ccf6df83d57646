//go:build rootonly

package cridiff_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// groupFiles are the settings of cgroups that containers are given: those of v1 by controller, and those of v2, whose
// groups have no controller of their own. A machine with both keeps its controllers, and their files, in v1.
var groupFiles = map[string][]string{
	"cpu":     {"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"},
	"cpuset":  {"cpuset.cpus", "cpuset.mems", "cpuset.effective_cpus"},
	"devices": {"devices.list"},
	"memory":  {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control", "memory.swappiness"},
	"pids":    {"pids.max"},
	"hugetlb": {"hugetlb.2MB.limit_in_bytes"},
	"": {"cpu.weight", "cpu.max", "cpuset.cpus", "cpuset.mems", "cpuset.cpus.effective", "memory.max", "memory.swap.max",
		"pids.max", "hugetlb.2MB.max"},
}

// pid returns the process of a container, as runtimes tell those who ask for details.
func (p *play) pid(id string) int {
	got, err := p.ContainerStatus(p.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0
	}
	if n, err := strconv.Atoi(got.GetInfo()["pid"]); err == nil {
		return n
	}
	var info struct {
		PID int `json:"pid"`
	}
	_ = json.Unmarshal([]byte(got.GetInfo()["info"]), &info) // 0 is none.
	return info.PID
}

// outside notes how the machine sees the process of a container.
func (p *play) outside(name, id string) {
	pid := p.pid(id)
	if pid == 0 {
		p.note(name, "no process")
		return
	}
	of := func(file string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			return reasonOf(err)
		}
		return strings.Join(strings.Fields(string(text)), " ")
	}
	p.note(name+" oom_score_adj", of("oom_score_adj"))
	spaces, _ := os.ReadDir(fmt.Sprintf("/proc/%d/ns", pid)) // None: that is seen.
	for _, s := range spaces {
		at, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, s.Name()))
		if err == nil {
			p.note(name+" namespace "+s.Name(), p.space(s.Name(), at))
		}
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	own, ownErr := os.ReadFile("/proc/self/cgroup")
	if err = errors.Join(err, ownErr); err != nil {
		p.note(name+" groups", reasonOf(err))
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			p.note(name+" has a group of "+controller, !strings.Contains(string(own), ":"+fields[1]+":"+fields[2]+"\n"))
			for _, file := range groupFiles[controller] {
				text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, fields[2], file))
				if err != nil {
					text = []byte(reasonOf(err))
				}
				p.note(name+" "+file, strings.TrimSpace(string(text)))
			}
		}
	}
}
