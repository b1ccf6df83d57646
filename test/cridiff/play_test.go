//go:build rootonly

package cridiff_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// play is a case on one side, and what comes of it.
type play struct {
	*side
	t    *testing.T
	ctx  context.Context
	name string
	// dir has the files of this case on this side.
	dir string
	// rng gives both sides the same numbers.
	rng *rand.Rand
	// said is what is compared.
	said map[string]string

	pod       *runtimeapi.PodSandboxConfig
	sandbox   string
	container *runtimeapi.ContainerConfig
	words     []string // Pairs of what is replaced and by what, for strings.NewReplacer.
	spaces    map[string]string
}

// playOn plays a case to one side.
func playOn(t *testing.T, s *side, c scenario, number int, cgroups string, seed uint64) map[string]string {
	name := fmt.Sprintf("c%d", number)
	p := &play{side: s, t: t, ctx: t.Context(), name: name, dir: filepath.Join(s.dir, name),
		rng: rand.New(rand.NewPCG(seed, uint64(number))), said: map[string]string{}, spaces: map[string]string{}}
	p.words = []string{p.dir, "<dir>"}
	if err := os.MkdirAll(filepath.Join(p.dir, "logs"), 0o755); err != nil { //nolint:gosec // others enter it too
		t.Error(err)
		return p.said
	}
	p.pod = basePod(p, cgroups)
	p.container = baseContainer(p)
	c.play(p)
	p.end()
	return p.said
}

// basePod is what a kubelet asks of a pod that asks for nothing.
func basePod(p *play, cgroups string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.name, Namespace: "default", Uid: "uid-" + p.name, Attempt: 0},
		Hostname: p.name, LogDirectory: filepath.Join(p.dir, "logs"),
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local"},
			Options: []string{"ndots:5"}},
		Labels: map[string]string{"app": p.name}, Annotations: map[string]string{"note": "of the pod"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: cgroups + "/theirs",
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

// baseContainer is what a kubelet asks of a container that asks for nothing.
func baseContainer(p *play) *runtimeapi.ContainerConfig {
	p.write("hosts", "127.0.0.1 localhost\n")
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: imageName(plain)},
		LogPath:  "main.log",
		Labels:   map[string]string{"app": p.name, "container": "main"}, Annotations: map[string]string{"note": "mine"},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/etc/hosts", HostPath: filepath.Join(p.dir, "hosts")}},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuShares: 2, OomScoreAdj: 1000},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				MaskedPaths: []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
					"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
					"/sys/devices/virtual/powercap", "/sys/firmware"},
				ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			},
		},
	}
}

func (p *play) sec() *runtimeapi.LinuxContainerSecurityContext {
	return p.container.Linux.SecurityContext
}

func (p *play) res() *runtimeapi.LinuxContainerResources { return p.container.Linux.Resources }

// options changes the namespaces of the pod, which the container is told too.
func (p *play) options(change func(*runtimeapi.NamespaceOption)) {
	change(p.pod.Linux.SecurityContext.NamespaceOptions)
	change(p.sec().NamespaceOptions)
}

// note says something, with what differs between the sides replaced by words.
func (p *play) note(name string, value any) {
	p.said[name] = strings.NewReplacer(p.words...).Replace(fmt.Sprint(value))
}

// withoutMarker returns a limit without the number by which a shim knows its processes.
func withoutMarker(limit string) string {
	number, rest, _ := strings.Cut(limit, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || sys.Marker(n)&sys.NewMarker(0) == 0 {
		return limit
	}
	return "<marker> " + rest
}

// answer notes the code of an answer, and tells whether it is OK.
func (p *play) answer(name string, err error) bool {
	p.note(name+": code", status.Code(err))
	if err != nil {
		p.said["("+name+": message)"] = err.Error() // In brackets: shown, not compared.
	}
	return err == nil
}

// run plays the whole life of a pod with one container, the program `inside` unless the case has made it another one.
func (p *play) run() {
	if !p.runSandbox() {
		return
	}
	id := p.create("container", p.container)
	if id == "" {
		return
	}
	p.status("created", id)
	if p.start("container", id) {
		p.look(id)
	}
	p.finish(id)
}

func (p *play) runSandbox() bool {
	made, err := p.RunPodSandbox(p.ctx, &runtimeapi.RunPodSandboxRequest{Config: p.pod})
	if !p.answer("sandbox", err) {
		return false
	}
	p.sandbox = made.GetPodSandboxId()
	p.words = append(p.words, p.sandbox, "<sandbox>")
	p.sandboxStatus("sandbox")
	return true
}

func (p *play) sandboxStatus(name string) {
	got, err := p.PodSandboxStatus(p.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.sandbox})
	if !p.answer(name+" status", err) {
		return
	}
	st := proto.CloneOf(got.GetStatus())
	if ip := st.GetNetwork().GetIp(); ip != "" {
		p.words = append(p.words, ip, "<ip>")
	}
	p.note(name+" created before now", st.GetCreatedAt() > 0 && st.GetCreatedAt() <= time.Now().UnixNano())
	st.CreatedAt = 0
	p.message(name, st)
}

// message notes the fields of a message, each under its name.
func (p *play) message(name string, m proto.Message) {
	text, err := protojson.Marshal(m)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		p.t.Error(err)
	}
	p.fields(name, fields)
}

func (p *play) fields(name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for k, inner := range v {
			p.fields(name+"."+k, inner)
		}
	case []any:
		for i, inner := range v {
			p.fields(fmt.Sprintf("%s.%d", name, i), inner)
		}
	default:
		p.note(name, v)
	}
}

func (p *play) create(name string, config *runtimeapi.ContainerConfig) string {
	made, err := p.CreateContainer(p.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.sandbox, Config: config,
		SandboxConfig: p.pod})
	if !p.answer(name+" create", err) {
		return ""
	}
	p.words = append(p.words, made.GetContainerId(), "<"+name+">")
	return made.GetContainerId()
}

func (p *play) start(name, id string) bool {
	_, err := p.StartContainer(p.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return p.answer(name+" start", err)
}

// containerStatus returns the status of a container; nil if there is none.
func (p *play) containerStatus(id string) *runtimeapi.ContainerStatus {
	got, err := p.ContainerStatus(p.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil
	}
	return got.GetStatus()
}

// status notes all that is told of a container.
func (p *play) status(name, id string) {
	got, err := p.ContainerStatus(p.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if !p.answer(name+" status", err) {
		return
	}
	st := proto.CloneOf(got.GetStatus())
	p.note(name+" times", fmt.Sprint(st.GetCreatedAt() > 0, st.GetStartedAt() >= st.GetCreatedAt(),
		st.GetFinishedAt() >= st.GetStartedAt(), st.GetStartedAt() == 0, st.GetFinishedAt() == 0))
	st.CreatedAt, st.StartedAt, st.FinishedAt = 0, 0, 0
	if st.GetMessage() != "" {
		p.said["("+name+" message)"] = st.GetMessage()
		st.Message = "<some>"
	}
	p.words = append(p.words, st.GetImageRef(), "<image>")
	p.message(name, st)
}

// look compares what a container that runs `inside` sees, from outside, from inside, and from a command in it.
func (p *play) look(id string) {
	text, ended := p.output(id)
	p.view("view", text)
	if ended {
		return
	}
	p.outside("outside", id)
	p.status("running", id)
	out, err := p.ExecSync(p.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{insidePath, "once"},
		Timeout: 20})
	if p.answer("exec", err) {
		p.note("exec: exit code", out.GetExitCode())
		p.view("exec", string(out.GetStdout()))
		p.note("exec: stderr", string(out.GetStderr()))
	}
	out, err = p.ExecSync(p.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Timeout: 20,
		Cmd: []string{"cat", "/proc/self/limits", "/proc/self/status"}})
	if !p.answer("limits", err) {
		return
	}
	for line := range strings.Lines(string(out.GetStdout())) {
		name, value, found := strings.Cut(line, ":\t")
		switch {
		case found && strings.HasPrefix(name, "Sig") && name != "SigQ": // Go changes these in its own threads.
			p.note("signals "+name, withoutInternal(strings.TrimSpace(value)))
		case strings.HasPrefix(line, "Max "): // Go raises one of these.
			p.note("limits: "+strings.TrimSpace(line[4:26]), withoutMarker(strings.Join(strings.Fields(line[26:]), " ")))
		}
	}
}

// withoutInternal returns a set of signals without 32 and 33. They are the C library's own, which has programs ignore
// them that it starts in certain ways: containerd, and the containers with it, when this test is one of those.
func withoutInternal(set string) string {
	n, err := strconv.ParseUint(set, 16, 64)
	if err != nil {
		return set
	}
	return fmt.Sprintf("%016x", n&^(1<<31|1<<32))
}

// output waits until a container has printed a whole line or has ended, and returns what it has printed.
func (p *play) output(id string) (text string, ended bool) {
	path := filepath.Join(p.pod.GetLogDirectory(), p.containerConfig(id).GetLogPath())
	deadline := time.Now().Add(patience)
	for {
		st := p.containerStatus(id) // Before its log: what has ended has logged all.
		text, _ = readLog(path)
		ended = st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		if ended || st == nil || strings.HasSuffix(text, "\n") {
			return text, ended
		}
		if time.Now().After(deadline) {
			p.t.Errorf("%s: %s: the container says nothing", p.side.name, p.name)
			return text, false
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// containerConfig is that of the only container whose log is read.
func (p *play) containerConfig(string) *runtimeapi.ContainerConfig { return p.container }

// readLog returns what containers have written to a log in CRI's format, without its times, and how its lines begin.
func readLog(path string) (text, form string) {
	all, err := os.ReadFile(path) //nolint:gosec // our own file
	if err != nil {
		return "", reasonOf(err)
	}
	var out, forms strings.Builder
	for line := range strings.Lines(string(all)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) < 4 || !strings.HasSuffix(line, "\n") {
			return out.String(), forms.String() + "malformed: " + line
		}
		if _, err := time.Parse(time.RFC3339Nano, fields[0]); err != nil {
			forms.WriteString(err.Error())
		}
		fmt.Fprintf(&forms, "%s %s %d\n", fields[1], fields[2], len(fields[3]))
		out.WriteString(fields[3])
		if fields[2] == "F" {
			out.WriteByte('\n')
		}
	}
	return out.String(), forms.String()
}

func reasonOf(err error) string {
	if os.IsNotExist(err) {
		return "not there"
	}
	return err.Error()
}

// view notes what `inside` has printed; what is no such view is noted as it is.
func (p *play) view(name, text string) {
	var seen map[string]string
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		p.note(name+" as text", text)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		value := seen[k]
		if kind, found := strings.CutPrefix(k, "namespace "); found {
			value = p.space(kind, value)
		}
		if strings.HasPrefix(k, "limit ") {
			value = withoutMarker(value)
		}
		p.note(name+" "+k, value)
	}
}

// space says whose a namespace is: the machine's, or that of whoever it was seen in first.
func (p *play) space(kind, value string) string {
	if own, err := os.Readlink("/proc/self/ns/" + kind); err == nil && own == value {
		return "the machine's"
	}
	if p.spaces[value] == "" {
		n := 0
		for seen := range p.spaces {
			if strings.HasPrefix(seen, kind+":") {
				n++
			}
		}
		p.spaces[value] = fmt.Sprintf("number %d", n)
	}
	return p.spaces[value]
}

// finish stops a container and what it is in, and looks at what is said of that.
func (p *play) finish(id string) {
	_, err := p.StopContainer(p.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 20})
	p.answer("stop", err)
	p.status("exited", id)
	_, err = p.RemoveContainer(p.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	p.answer("remove", err)
	_, err = p.ContainerStatus(p.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	p.answer("removed status", err)
}

// end stops and removes the sandbox, whatever has become of it.
func (p *play) end() {
	if p.sandbox == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), patience)
	defer cancel()
	p.ctx = ctx
	_, err := p.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox})
	p.answer("sandbox stop", err)
	p.sandboxStatus("stopped sandbox")
	_, err = p.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox})
	p.answer("sandbox remove", err)
	_, err = p.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.sandbox})
	p.note("removed sandbox status: code", status.Code(err) == codes.NotFound)
	if err := os.RemoveAll(p.dir); err != nil {
		p.note("files left", err)
	}
}
