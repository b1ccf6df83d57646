//go:build rootonly

package cridiff_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// scripts are cases that play something else than one container from beginning to end.
var scripts = []scenario{
	{"ends", ends}, {"log", logs}, {"exec", execs}, {"twice", twice}, {"lists", lists}, {"update", updates},
	{"reopen", reopens}, {"stats", stats}, {"neighbours", neighbours}, {"unknown ids", unknownIDs},
}

// shell makes a container of a script, in a sandbox that is made where there is none.
func (p *play) shell(name, script string, change ...func(*runtimeapi.ContainerConfig)) string {
	if p.sandbox == "" && !p.runSandbox() {
		return ""
	}
	config := proto.CloneOf(p.container)
	config.Metadata.Name, config.LogPath, config.Labels["container"] = name, name+".log", name
	config.Command = []string{"sh", "-c", script}
	for _, f := range change {
		f(config)
	}
	id := p.create(name, config)
	if id == "" || !p.start(name, id) {
		return ""
	}
	return id
}

// until waits for something that is bound to come.
func (p *play) until(what string, ok func() bool) {
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Errorf("%s: %s: waited in vain: %s", p.side.name, p.name, what)
			return
		}
	}
}

func (p *play) ended(id string) bool {
	return p.containerStatus(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// says waits until a container has logged something.
func (p *play) says(name string) {
	p.until(name+" says something", func() bool {
		text, _ := readLog(filepath.Join(p.pod.GetLogDirectory(), name+".log"))
		return text != ""
	})
}

// ends: how processes end, by themselves, by signals, by a stop, and for want of memory.
func ends(p *play) {
	for name, script := range map[string]string{"zero": "exit 0", "five": "exit 5", "high": "exit 255",
		"killed": "(sleep 0.2; kill -9 1) & sh -c 'kill -9 $$'", "child": "sleep 1000 & exit 4"} {
		if id := p.shell(name, script); id != "" {
			p.until(name+" ends", func() bool { return p.ended(id) })
			p.status(name+" ended", id)
		}
	}
	id := p.shell("memory", "echo go; x=0123456789abcdef; while :; do x=$x$x; done", func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 24 << 20
	})
	if id != "" {
		p.until("the memory is used up", func() bool { return p.ended(id) })
		p.status("out of memory", id)
	}
	for name, script := range map[string]string{"polite": "trap 'exit 6' TERM; echo up; while :; do sleep 0.1; done",
		"deaf": "trap '' TERM; echo up; while :; do sleep 0.1; done"} {
		if id := p.shell(name, script); id != "" {
			p.says(name)
			_, err := p.StopContainer(p.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 2})
			p.answer(name+" stop", err)
			p.status(name+" stopped", id)
		}
	}
}

// logs: both streams, a line without an end, long lines.
func logs(p *play) {
	for name, script := range map[string]string{
		"both": "echo out; echo err >&2", "unfinished": "printf 'no end'", "empty": "echo; echo",
		"long":   "dd if=/dev/zero bs=1000 count=40 2>/dev/null | while read -r x; do :; done; printf '%040000d' 7; echo",
		"binary": `printf '\000\001\r\n\377 x\n'`,
	} {
		if id := p.shell(name, script); id != "" {
			p.until(name+" ends", func() bool { return p.ended(id) })
			text, form := readLog(filepath.Join(p.pod.GetLogDirectory(), name+".log"))
			if name == "both" { // Two streams have no order.
				text, form = fmt.Sprint(len(text)), fmt.Sprint(len(form))
			}
			p.note(name+" log", fmt.Sprintf("%q", text))
			p.note(name+" form", form)
		}
	}
}

// execs: commands in a container.
func execs(p *play) {
	id := p.shell("main", "echo up; exec sleep 1000")
	if id == "" {
		return
	}
	p.says("main")
	for name, cmd := range map[string][]string{
		"code": {"sh", "-c", "echo out; echo err >&2; exit 9"}, "missing": {"/not/there"}, "missing in PATH": {"not-there"},
		"no program": {"/data/file"}, "none": nil, "empty": {""}, "killed": {"sh", "-c", "kill -9 $$"},
		"slow": {"sleep", "1000"}, "who": {"id"}, "where": {"pwd"}, "much": {"head", "-c", "300000", "/dev/zero"},
	} {
		timeout := int64(20)
		if name == "slow" {
			timeout = 1
		}
		out, err := p.ExecSync(p.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
		if p.answer("exec "+name, err) {
			p.note("exec "+name+" result", fmt.Sprintf("%d %.200q %.200q %d", out.GetExitCode(), out.GetStdout(),
				out.GetStderr(), len(out.GetStdout())))
		}
	}
	_, err := p.StopContainer(p.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 0})
	p.answer("stop", err)
	_, err = p.ExecSync(p.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}})
	p.answer("exec in what has ended", err)
}

// twice: the same call again.
func twice(p *play) {
	id := p.shell("main", "echo up; exec sleep 1000")
	if id == "" {
		return
	}
	again := proto.CloneOf(p.container)
	again.LogPath, again.Command = "again.log", []string{"true"}
	_, err := p.CreateContainer(p.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.sandbox, Config: again,
		SandboxConfig: p.pod})
	p.answer("another of the name", err)
	_, err = p.StartContainer(p.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	p.answer("start again", err)
	for _, name := range []string{"stop", "stop again"} {
		_, err = p.StopContainer(p.ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
		p.answer(name, err)
	}
	_, err = p.StartContainer(p.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	p.answer("start what has ended", err)
	for _, name := range []string{"remove", "remove again"} {
		_, err = p.RemoveContainer(p.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		p.answer(name, err)
	}
	for _, name := range []string{"sandbox stopped", "sandbox stopped again"} {
		_, err = p.StopPodSandbox(p.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox})
		p.answer(name, err)
	}
	_, err = p.CreateContainer(p.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.sandbox, Config: again,
		SandboxConfig: p.pod})
	p.answer("create in a stopped sandbox", err)
	for _, name := range []string{"sandbox removed", "sandbox removed again"} {
		_, err = p.RemovePodSandbox(p.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox})
		p.answer(name, err)
	}
}

// lists: what filters let through.
func lists(p *play) {
	running := p.shell("runs", "echo up; exec sleep 1000")
	over := p.shell("over", "exit 0")
	if running == "" || over == "" {
		return
	}
	p.until("one ends", func() bool { return p.ended(over) })
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	for name, f := range map[string]*runtimeapi.ContainerFilter{
		"sandbox": {PodSandboxId: p.sandbox}, "id": {Id: running}, "part of an id": {Id: running[:20]},
		"label":      {LabelSelector: map[string]string{"app": p.name}},
		"labels":     {LabelSelector: map[string]string{"app": p.name, "container": "over"}},
		"no label":   {LabelSelector: map[string]string{"app": p.name, "other": "x"}},
		"running":    {PodSandboxId: p.sandbox, State: state(runtimeapi.ContainerState_CONTAINER_RUNNING)},
		"exited":     {PodSandboxId: p.sandbox, State: state(runtimeapi.ContainerState_CONTAINER_EXITED)},
		"nobody's":   {PodSandboxId: "not-there"},
		"id of both": {Id: over, PodSandboxId: p.sandbox, State: state(runtimeapi.ContainerState_CONTAINER_RUNNING)},
	} {
		got, err := p.ListContainers(p.ctx, &runtimeapi.ListContainersRequest{Filter: f})
		p.answer("list by "+name, err)
		var names []string
		for _, c := range got.GetContainers() {
			names = append(names, c.GetMetadata().GetName()+" "+c.GetState().String())
		}
		slices.Sort(names)
		p.note("list by "+name, names)
	}
	for name, f := range map[string]*runtimeapi.PodSandboxFilter{
		"id": {Id: p.sandbox}, "label": {LabelSelector: map[string]string{"app": p.name}},
		"not ready": {Id: p.sandbox, State: &runtimeapi.PodSandboxStateValue{
			State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}},
	} {
		got, err := p.ListPodSandbox(p.ctx, &runtimeapi.ListPodSandboxRequest{Filter: f})
		p.answer("pods by "+name, err)
		p.note("pods by "+name, len(got.GetItems()))
	}
}

// updates: resources of what runs.
func updates(p *play) {
	id := p.shell("main", "echo up; exec sleep 1000", func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes, c.Linux.Resources.CpuQuota = 128<<20, 50_000
	})
	if id == "" {
		return
	}
	for i, r := range []*runtimeapi.LinuxContainerResources{
		{MemoryLimitInBytes: 256 << 20, CpuQuota: 80_000, CpuPeriod: 100_000, CpuShares: 512},
		{MemoryLimitInBytes: 64 << 20},
		{CpusetCpus: "0", CpusetMems: "0"},
	} {
		_, err := p.UpdateContainerResources(p.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
		p.answer(fmt.Sprintf("update %d", i), err)
	}
	_, err := p.UpdateContainerResources(p.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20, CpuQuota: 30_000, CpuPeriod: 100_000,
			CpuShares: 256}})
	p.answer("update", err)
	p.outside("updated", id)
}

// reopens: the log is moved away, and goes on in a file of its own.
func reopens(p *play) {
	id := p.shell("main", "while :; do echo x; sleep 0.05; done")
	if id == "" {
		return
	}
	p.says("main")
	path := filepath.Join(p.pod.GetLogDirectory(), "main.log")
	if err := os.Rename(path, path+".old"); err != nil {
		p.t.Error(err)
	}
	_, err := p.ReopenContainerLog(p.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	p.answer("reopen", err)
	p.says("main")
	_, err = p.StopContainer(p.ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
	p.answer("stop", err)
	_, err = p.ReopenContainerLog(p.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	p.answer("reopen of what has ended", err)
}

// stats: which figures there are.
func stats(p *play) {
	id := p.shell("main", "echo text >/data/new; echo up; exec sleep 1000")
	if id == "" {
		return
	}
	p.says("main")
	var s *runtimeapi.ContainerStats
	p.until("there are figures", func() bool {
		got, err := p.ContainerStats(p.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
		s = got.GetStats()
		return err != nil || s.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0 &&
			s.GetWritableLayer().GetUsedBytes().GetValue() > 0
	})
	p.note("attributes", fmt.Sprint(s.GetAttributes().GetMetadata(), s.GetAttributes().GetLabels()))
	p.note("cpu", s.GetCpu().GetTimestamp() > 0)
	p.note("memory", s.GetMemory().GetWorkingSetBytes().GetValue() > 0)
	got, err := p.ListContainerStats(p.ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{PodSandboxId: p.sandbox}})
	p.answer("list", err)
	p.note("list", len(got.GetStats()))
	pod, err := p.PodSandboxStats(p.ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.sandbox})
	p.answer("pod", err)
	whole := pod.GetStats().GetLinux()
	p.note("pod", fmt.Sprint(pod.GetStats().GetAttributes().GetMetadata(), pod.GetStats().GetAttributes().GetLabels()))
	p.note("pod cpu", whole.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0)
	p.note("pod memory", whole.GetMemory().GetWorkingSetBytes().GetValue() > 0)
	link := whole.GetNetwork().GetDefaultInterface()
	p.note("pod link", link.GetName())
	p.note("pod received, sent", fmt.Sprint(link.GetRxBytes() != nil, link.GetTxBytes() != nil, link.GetRxErrors() != nil,
		link.GetTxErrors() != nil, len(whole.GetNetwork().GetInterfaces())))
	p.note("containers of the pod", len(whole.GetContainers()))
}

// neighbours: two containers of a pod, of which one joins the processes of the other.
func neighbours(p *play) {
	id := p.shell("main", "echo up; touch /dev/shm/shared; exec sleep 1000")
	if id == "" {
		return
	}
	p.says("main")
	p.outside("first", id)
	for name, target := range map[string]string{"beside": "", "joined": id} {
		other := p.shell(name, "ls /dev/shm; cat /proc/1/comm; echo end; exec sleep 1000",
			func(c *runtimeapi.ContainerConfig) {
				o := c.Linux.SecurityContext.NamespaceOptions
				if o.TargetId = target; target != "" {
					o.Pid = runtimeapi.NamespaceMode_TARGET
				}
			})
		if other == "" {
			continue
		}
		p.says(name)
		p.until(name+" has said all", func() bool {
			text, _ := readLog(filepath.Join(p.pod.GetLogDirectory(), name+".log"))
			return len(text) > 4 && text[len(text)-4:] == "end\n"
		})
		text, _ := readLog(filepath.Join(p.pod.GetLogDirectory(), name+".log"))
		p.note(name+" sees", text)
		p.spaces = map[string]string{}
		p.outside("first again", id)
		p.outside(name, other)
	}
}

// unknownIDs: calls about what is not there.
func unknownIDs(p *play) {
	const none = "0123456789abcdef"
	_, err := p.StartContainer(p.ctx, &runtimeapi.StartContainerRequest{ContainerId: none})
	p.answer("start", err)
	_, err = p.StopContainer(p.ctx, &runtimeapi.StopContainerRequest{ContainerId: none})
	p.answer("stop", err)
	_, err = p.RemoveContainer(p.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: none})
	p.answer("remove", err)
	_, err = p.ContainerStatus(p.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: none})
	p.answer("status", err)
	_, err = p.ContainerStats(p.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: none})
	p.answer("stats", err)
	_, err = p.ExecSync(p.ctx, &runtimeapi.ExecSyncRequest{ContainerId: none, Cmd: []string{"true"}})
	p.answer("exec", err)
	_, err = p.ReopenContainerLog(p.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: none})
	p.answer("reopen", err)
	_, err = p.UpdateContainerResources(p.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: none,
		Linux: &runtimeapi.LinuxContainerResources{CpuShares: 10}})
	p.answer("update", err)
	_, err = p.StopPodSandbox(p.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: none})
	p.answer("stop pod", err)
	_, err = p.RemovePodSandbox(p.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: none})
	p.answer("remove pod", err)
	_, err = p.PodSandboxStatus(p.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: none})
	p.answer("pod status", err)
	_, err = p.CreateContainer(p.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: none, Config: p.container,
		SandboxConfig: p.pod})
	p.answer("create", err)
}
