package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// spec: CTR-1
func TestExitCodes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("exits")
	for i, c := range []struct {
		script string
		code   int32
		reason string
	}{
		{"exit 0", 0, "Completed"},
		{"exit 7", 7, "Error"},
		{"kill -KILL $$", 137, "Error"},
		{"kill -TERM $$", 143, "Error"},
		{"kill -SEGV $$", 139, "Error"},
	} {
		id := n.run(sb, containerConfig("c"+strconv.Itoa(i), "/bin/sh", "-c", c.script))
		st := n.wait(id)
		if st.GetExitCode() != c.code || st.GetReason() != c.reason {
			t.Errorf("%q: exit code %d, reason %s; want %d, %s", c.script, st.GetExitCode(), st.GetReason(), c.code, c.reason)
		}
		if st.GetStartedAt() < st.GetCreatedAt() || st.GetFinishedAt() < st.GetStartedAt() {
			t.Errorf("%q: times go back: %v", c.script, st)
		}
	}
}

// spec: CTR-4
func TestStartErrors(t *testing.T) {
	t.Parallel()
	onlyHost(t, "libcontainer has words of its own")
	n := newNode(t)
	sb := n.sandbox("broken")
	dir := t.TempDir()
	program := func(name, content string) string {
		path := filepath.Join(dir, name)
		writeProgram(t, path, []byte(content))
		return path
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command []string
		dir     string
		want    string
	}{
		"absent":      {[]string{"/no/such/program"}, "", `command "/no/such/program" does not exist`},
		"not-in-path": {[]string{"no-such-program"}, "", `command "no-such-program" not found in PATH`},
		"not-exec":    {[]string{plain}, "", "permission denied"},
		"directory":   {[]string{dir}, "", "permission denied"},
		"interpreter": {[]string{program("script", "#!/no/such/interpreter\n")}, "",
			"the interpreter that it names does not"},
		"garbage":  {[]string{program("garbage", "\x00\x01\x02")}, "", "neither a program"},
		"workdir":  {[]string{"/bin/true"}, "/no/such/dir", `working directory "/no/such/dir" does not exist`},
		"relative": {[]string{"./missing"}, dir, `command "./missing" does not exist`},
	} {
		config := containerConfig(name, c.command...)
		config.WorkingDir = c.dir
		id := n.create(sb, config)
		for range 2 { // Asked again it answers the same, and starts nothing.
			err := n.start(id)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; want %q", name, err, c.want)
			}
		}
		st := n.status(id)
		if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128 ||
			st.GetReason() != "StartError" ||
			!strings.Contains(st.GetMessage(), c.want) {
			t.Errorf("%s: status %v", name, st)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the records are the runtime's")
	onlyHost(t, "images allow more")
	n := newNode(t)
	sb := n.sandbox("refusals")
	ok := func() *runtimeapi.ContainerConfig { return containerConfig("c", "/bin/true") }
	for name, c := range map[string]struct {
		change func(*runtimeapi.ContainerConfig)
		want   string
	}{
		"image":      {func(c *runtimeapi.ContainerConfig) { c.Image.Image = "nginx:1" }, "--runtime-endpoint"},
		"no command": {func(c *runtimeapi.ContainerConfig) { c.Command = nil }, "no command"},
		"log path":   {func(c *runtimeapi.ContainerConfig) { c.LogPath = "../../etc/x" }, "log_path"},
		"mount at the root": {func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/tmp", ContainerPath: "/tmp/.."}}
		}, "cannot mount"},
		"mount of nothing": {func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x"}}
		}, "no host_path"},
		"mount of an image": {func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", Image: &runtimeapi.ImageSpec{Image: "nginx"}}}
		}, "--runtime-endpoint"},
		"recursively read-only, half": {func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/tmp", ContainerPath: "/x", RecursiveReadOnly: true}}
		}, "recursive_read_only needs"},
		"no name": {func(c *runtimeapi.ContainerConfig) { c.Metadata = nil }, "name"},
	} {
		config := ok()
		c.change(config)
		_, err := n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: config})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	if _, err := n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: "none",
		Config: ok()}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown sandbox: %v", err)
	}
	_, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("empty sandbox: %v", err)
	}
	list, err := n.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) != 0 {
		t.Errorf("refused containers are listed: %v %v", list, err)
	}
}

// Asked twice for the same thing, the runtime does it once.
func TestIdempotence(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	sb := n.sandbox("twice")
	if again := n.sandbox("twice"); again != sb {
		t.Errorf("a second sandbox was made: %s, %s", sb, again)
	}
	config := containerConfig("c", "/bin/sh", "-c", "echo started >> "+filepath.Join(n.dir, "count")+"; exec sleep 1000")
	id := n.create(sb, config)
	if again := n.create(sb, config); again != id {
		t.Errorf("a second container was made: %s, %s", id, again)
	}
	for range 3 {
		if err := n.start(id); err != nil {
			t.Fatal(err)
		}
	}
	count := func() string {
		b, _ := os.ReadFile(filepath.Join(n.dir, "count"))
		return string(b)
	}
	eventually(t, "process 1 has started", func() bool { return count() != "" })
	if _, err := n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb,
		Config: config}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a running container's name is free: %v", err)
	}
	n.stop(id, 0)
	if err := n.start(id); err != nil {
		t.Errorf("starting again: %v", err)
	}
	if got := count(); got != "started\n" {
		t.Errorf("started %q", got)
	}
	for range 2 {
		if _, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Error(err)
		}
	}
	if _, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(n,
		"twice")}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a stopped sandbox's name is free: %v", err)
	}
	next := sandboxConfig(n, "twice")
	next.Metadata.Attempt = 1
	if _, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: next}); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
}

// ignoreSignal makes this process ignore a signal that Go's runtime leaves alone; some shells pass that on.
func ignoreSignal(t *testing.T, sig uintptr) {
	t.Helper()
	set := func(handler byte) {
		action := [32]byte{handler}
		if _, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0,
			0); e != 0 {
			t.Fatal(e)
		}
	}
	set(1) // SIG_IGN
	t.Cleanup(func() { set(0) })
}

// What a process is given: environment, directory, session, standard input, signals, and no descriptor of anyone else.
func TestProcessSurroundings(t *testing.T) {
	onlyHost(t, "libcontainer sets up the process")
	t.Setenv("MONOPLANE_SECRET", "must not be passed on")
	ignoreSignal(t, 32)
	n := newNode(t)
	config := containerConfig("env", "sh", "-c",
		`echo "$FOO $HOSTNAME $PWD $MONOPLANE_SECRET"; cat; ls -l /proc/self/fd | wc -l; umask; ps -o sid= -p $$ | tr -d `+
			`' '; echo $$; grep -E 'SigIgn|SigBlk' /proc/self/status; echo done > "$MONOPLANE_TERMINATION_LOG"`)
	config.Envs = []*runtimeapi.KeyValue{{Key: "FOO", Value: []byte("bar")}}
	config.WorkingDir = "/usr"
	id := n.run(n.sandbox("env"), config)
	st := n.wait(id)
	lines := strings.Split(strings.ReplaceAll(n.logText(id), "stdout F ", ""), "\n")
	if len(lines) < 7 {
		t.Fatalf("output %q", lines)
	}
	if lines[0] != "bar env /usr " {
		t.Errorf("environment: %q", lines[0])
	}
	if lines[1] != "5" { // "total", 0, 1, 2, and the directory itself.
		t.Errorf("ls counts %s lines of descriptors", lines[1])
	}
	if lines[2] != "0022" {
		t.Errorf("umask %s", lines[2])
	}
	if lines[3] != lines[4] {
		t.Errorf("session %s of process %s", lines[3], lines[4])
	}
	for _, l := range lines[5:7] {
		if f := strings.Fields(l); len(f) != 2 || strings.Trim(f[1], "0") != "" {
			t.Errorf("signals: %s", l)
		}
	}
	if st.GetMessage() != "done\n" {
		t.Errorf("termination message %q", st.GetMessage())
	}
}

func TestListsAndStatus(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	a, b := n.sandbox("a"), n.sandbox("b")
	ca := n.run(a, containerConfig("one", "sleep", "1000"))
	cb := n.create(b, containerConfig("two", "sleep", "1000"))
	for name, c := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   string
	}{
		"sandbox": {&runtimeapi.ContainerFilter{PodSandboxId: a}, ca},
		"id":      {&runtimeapi.ContainerFilter{Id: cb}, cb},
		"labels":  {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"container": "two"}}, cb},
		"running": {&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{
			State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, ca},
	} {
		resp, err := n.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: c.filter})
		if err != nil || len(resp.GetContainers()) != 1 || resp.GetContainers()[0].GetId() != c.want {
			t.Errorf("%s: %v %v", name, resp, err)
		}
	}
	if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: a}); err != nil {
		t.Fatal(err)
	}
	if st := n.status(ca); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
		t.Errorf("after its sandbox was stopped: %v", st)
	}
	resp, err := n.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}})
	if err != nil || len(resp.GetItems()) != 1 || resp.GetItems()[0].GetId() != b {
		t.Errorf("ready sandboxes: %v %v", resp, err)
	}
	if err := n.start(ca); err != nil {
		t.Errorf("starting what has exited: %v", err)
	}
	if _, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "none"}); status.Code(
		err) != codes.NotFound {
		t.Errorf("unknown container: %v", err)
	}
}
