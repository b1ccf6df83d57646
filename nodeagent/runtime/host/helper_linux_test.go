package host

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// patience bounds every wait of these tests; a healthy machine needs a small part of it.
const patience = time.Minute

// eventually polls until ok, and fails the test at the deadline. It is the only way to wait for a process here.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

// node is a runtime under test and its directory.
type node struct {
	t    testing.TB
	dir  string
	logs string
	// images is where the store of images is, if there is one.
	images string
	// pods begins the uids of its pods: those of other tests, which run at the same time, have others.
	pods string
	cfg  Config
	*Runtime
}

func newNode(t testing.TB, change ...func(*Config)) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, dir: filepath.Join(dir, "runtime"), logs: filepath.Join(dir, "logs"), pods: t.Name() + "-"}
	n.cfg = Config{Dir: n.dir, ClaimDir: filepath.Join(dir, "claims"),
		Logger: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	if onImages() {
		change = append(change, withImages(t))
	}
	for _, f := range change {
		f(&n.cfg)
	}
	if n.cfg.OCI != nil {
		n.images = n.cfg.OCI.Images.(*testStore).dir
	}
	n.open()
	t.Cleanup(n.cleanUp)
	return n
}

// testLog shows the runtime's log with the test.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (n *node) open() {
	n.t.Helper()
	r, err := New(n.cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Runtime = r
	// What the other restrictions forbid is shown without AppArmor, whatever the machine has.
	n.profile = nil
}

// reopen is a restart of the agent without the death.
func (n *node) reopen() {
	n.t.Helper()
	if err := n.Close(); err != nil {
		n.t.Fatal(err)
	}
	n.open()
}

// cleanUp removes everything and proves that no process, cgroup or file is left.
func (n *node) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if n.closing.Err() != nil { // The test has failed half-way: what it left must end all the same.
		r, err := New(n.cfg)
		if err != nil {
			n.t.Errorf("cleaning up: %v", err)
			return
		}
		n.Runtime = r
	}
	var markers []sys.Marker
	var groups []sys.Cgroup
	n.mu.RLock()
	var ids []string
	for id, sb := range n.sandboxes {
		ids = append(ids, id)
		markers = append(markers, sb.rec.marker)
		groups = append(groups, sb.rec.group)
	}
	n.mu.RUnlock()
	for i, id := range ids {
		if err := n.remove(ctx, id); err != nil {
			n.t.Errorf("cleaning up: %v", err)
		}
		if left, _ := sys.Marked(markers[i], sandboxVariable+"="+id); len(left) > 0 {
			n.t.Errorf("processes are left: %v", left)
		}
		for _, dir := range append(groups[i].V1, groups[i].Unified) {
			if _, err := os.Stat(dir); err == nil {
				n.t.Errorf("cgroup %s is left", dir)
			}
		}
	}
	if err := n.Close(); err != nil {
		n.t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(n.dir, podsDir))
	if err != nil || len(left) > 0 {
		n.t.Errorf("left in the pods directory: %v %v", left, err)
	}
	for _, pid := range zombies() {
		eventually(n.t, fmt.Sprintf("somebody reaps %d", pid), func() bool { return !slices.Contains(zombies(), pid) })
	}
}

// remove removes a sandbox. With a short margin on a busy machine that may take several attempts.
func (n *node) remove(ctx context.Context, id string) error {
	for {
		_, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return err
		}
	}
}

// zombies lists dead children of this process that nobody has reaped. Those of other tests are among them for a
// moment.
func zombies() []int {
	var out []int
	kids, _ := sys.Children(os.Getpid())
	for _, k := range kids {
		if p, err := sys.Stat(k); err == nil && p.Zombie {
			out = append(out, k)
		}
	}
	return out
}

func sandboxConfig(n *node, name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default",
			Uid: fmt.Sprint("uid-", os.Getpid(), "-", n.pods, name)},
		Hostname:     name,
		LogDirectory: filepath.Join(n.logs, name),
		Labels:       map[string]string{"app": name},
	}
}

func containerConfig(name string, command ...string) *runtimeapi.ContainerConfig {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: ImageName},
		Command:  command,
		LogPath:  name + "/0.log",
		Labels:   map[string]string{"container": name},
	}
	if onImages() {
		// The files that tests exchange with their containers are there, and this program.
		config.Mounts = []*runtimeapi.Mount{{HostPath: os.TempDir(), ContainerPath: os.TempDir()}}
		config = ofImage(config)
		// They know the machine's pids, and orphans that no namespace of processes kills are what is hard to find.
		config.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		return config
	}
	return config
}

// onImages tells whether the suites of image "host" are to run on an image: MONOPLANE_TEST_IMAGES=1.
func onImages() bool { return os.Getenv("MONOPLANE_TEST_IMAGES") != "" }

// onlyHost skips what is different with images, where they have tests of their own.
func onlyHost(t *testing.T, why string) {
	t.Helper()
	if onImages() {
		t.Skip("not with images: ", why)
	}
}

// onceVariable is set where the suite has run on image "host" before, and runs again on images, or as a user who is
// not root, as in CI: tests that would go through the same code once more are left out then. make host-all has them
// all.
const onceVariable = "MONOPLANE_TEST_ONCE"

// sameOnImages, sameForUsers and sameEverywhere leave a test out that says the same there; why is what makes it so.
func sameOnImages(t *testing.T, why string) {
	t.Helper()
	if onImages() && os.Getenv(onceVariable) != "" {
		t.Skip("image host shows it: ", why)
	}
}

func sameForUsers(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(onceVariable) != "" {
		t.Skip("root shows it: ", why)
	}
}

func sameEverywhere(t *testing.T, why string) {
	t.Helper()
	sameOnImages(t, why)
	sameForUsers(t, why)
}

func (n *node) sandbox(name string) string {
	n.t.Helper()
	resp, err := n.RunPodSandbox(n.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(n, name)})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetPodSandboxId()
}

// plainSandbox makes a sandbox whose containers need nothing but a fork.
func (n *node) plainSandbox(name string) string {
	n.t.Helper()
	config := sandboxConfig(n, name)
	config.Hostname = ""
	resp, err := n.RunPodSandbox(n.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetPodSandboxId()
}

func (n *node) create(sandbox string, config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	resp, err := n.CreateContainer(n.t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox,
		Config: config})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetContainerId()
}

// run creates and starts a container.
func (n *node) run(sandbox string, config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	id := n.create(sandbox, config)
	if err := n.start(id); err != nil {
		n.t.Fatal(err)
	}
	return id
}

// shell runs a script in a new sandbox of the container's name.
func (n *node) shell(name, script string) string {
	n.t.Helper()
	return n.run(n.sandbox(name), containerConfig(name, "/bin/sh", "-c", script))
}

func (n *node) start(id string) error {
	_, err := n.StartContainer(n.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (n *node) stop(id string, timeout int64) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	if _, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) status(id string) *runtimeapi.ContainerStatus {
	n.t.Helper()
	resp, err := n.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetStatus()
}

func (n *node) sandboxOf(id string) *sandbox {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.sandboxes[id]
}

// wait returns the status of a container once it has exited.
func (n *node) wait(id string) *runtimeapi.ContainerStatus {
	n.t.Helper()
	eventually(n.t, "the container exits", func() bool {
		return n.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return n.status(id)
}

func (n *node) pid(id string) int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return int(n.containers[id].state.PID)
}

func (n *node) shimPID(sandbox string) int {
	n.t.Helper()
	p, ok := loadShim(filepath.Join(n.dir, podsDir, sandbox))
	if !ok {
		n.t.Fatal("the shim has no record")
	}
	return p.PID
}

// logText is the content of a container's log without times.
func (n *node) logText(id string) string {
	n.t.Helper()
	b, err := os.ReadFile(n.status(id).GetLogPath())
	if err != nil {
		n.t.Fatal(err)
	}
	var out strings.Builder
	for _, line := range strings.SplitAfter(string(b), "\n") {
		at, rest, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
			n.t.Fatalf("log line %q: %v", line, err)
		}
		out.WriteString(rest)
	}
	return out.String()
}

// alive tells whether a process runs.
func alive(pid int) bool {
	p, err := sys.Stat(pid)
	return err == nil && !p.Zombie
}

// readPID waits for a script to write a pid to a file.
func readPID(t testing.TB, name string) int {
	t.Helper()
	pid := 0
	eventually(t, name+" holds a pid", func() bool {
		b, err := os.ReadFile(name)
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		_, err = fmt.Sscan(string(b), &pid)
		return err == nil
	})
	return pid
}

// Programs that tests run are this test binary with helperVariable set.
const helperVariable = "MONOPLANE_HOST_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "":
		// A shim or a helper would otherwise sleep for a second before it exits, in each of hundreds of pods.
		if os.Getenv(raceOptions) == "" {
			_ = os.Setenv(raceOptions, "atexit_sleep_ms=0")
		}
		chooseTests()
		os.Exit(m.Run())
	case "daemon":
		os.Exit(daemonHelper())
	case "tracer":
		os.Exit(tracerHelper())
	case "confined":
		os.Exit(confinedHelper())
	case "huge":
		os.Exit(hugeHelper())
	case "agent":
		os.Exit(agentHelper())
	case "key":
		os.Exit(keyHelper())
	case "typist":
		os.Exit(typistHelper())
	case "intruder":
		os.Exit(intruderHelper())
	}
	fmt.Fprintln(os.Stderr, "unknown helper")
	os.Exit(2)
}

// Tests that gain nothing from the race detector, which makes each of the processes that they start several times as
// expensive, run without it. What they are about is done by processes of one thread (what containers are given, and
// see), by the kernel, or often enough by others; or they measure. unracedAsRoot are those that make test-root has.
const (
	unraced = "^Test(Rights|Seccomp|RightsThatCannotBeGiven|Restricted|MaskedPaths|MountsAtTheirPaths|NestedMounts|" +
		"LinksInVolumes|MountsThatFail|Devices|FilesOfThePod|ReadOnlyRoot|ViewsAreRefused|SubPaths|" +
		"SubPathSwappedForALink|Propagation|RecursiveReadOnly|StartErrors|Refusals|ExitCodes|RunAsUser|OOMScore|" +
		"DirectoryIsClosedToOthers|NothingIsInherited|ProcessSurroundings|HugePagesAreLimited|ForkBomb|LogFlood|" +
		"LastWords|NothingLeaks|StreamsLeakNothing|AgentIsKilled)$"
	unracedAsRoot = "^TestRoot(Escape|Users|Delegated|LimitsOfMemory)|^TestRootImage(AppArmor|DefaultAppArmor|Root|" +
		"IPCOfTheMachine|WithoutPause|Mounted|MountedPrivileged|MountedEscapes|MountedByHost|Volumes|VolumeIsFile|" +
		"OfManyLayers|LinksAtMounts|ProgramsThatDoNotRun|Copied|WithoutCgroup|OwnCgroup|UnenforcedLimitsAreTold|" +
		"PodLimits|LimitsOfMemory|StopSignal|Checkpoint|CheckpointRefused|CheckpointFails|CheckpointKinds|" +
		"CheckpointNeedsRoot)$"
)

// unracedVariable has only those run that the race detector leaves out.
const unracedVariable = "MONOPLANE_TEST_UNRACED"

// chooseTests sets what go test's flags do not say: which tests run, and how many at once. Those that are not parallel
// look at what is the whole process's, or change it, or measure.
func chooseTests() {
	set := func(name, value string) {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	set("test.parallel", "4") // They wait more than they calculate, and a start that takes long is given up.
	flag.Parse()
	if flag.Lookup("test.run").Value.String() != "" {
		return
	}
	skip := flag.Lookup("test.skip").Value.String()
	switch {
	case raceDetector && skip != "":
		set("test.skip", skip+"|"+unraced+"|"+unracedAsRoot)
	case raceDetector:
		set("test.skip", unraced+"|"+unracedAsRoot)
	case os.Getenv(unracedVariable) != "":
		set("test.run", unraced)
	}
}

// daemonHelper starts its arguments the way a daemon starts: in a session of its own, with another marker and an
// empty environment, and ends.
func daemonHelper() int {
	if os.Getenv("HIDE") != "" {
		if err := sys.SetMarker(0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 1
	}
	p, err := os.StartProcess(os.Args[1], os.Args[1:], &os.ProcAttr{
		Env: []string{}, Files: []*os.File{null, null, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(p.Pid)
	return 0
}

// unmount unmounts what nothing holds but, for a moment, a child that another test has started: until it executes its
// own program it has all files of this process open.
func unmount(t testing.TB, dir string) {
	t.Helper()
	eventually(t, dir+" is let go", func() bool { return syscall.Unmount(dir, 0) == nil })
}

// writeProgram writes a file that is to be executed. Nothing may be started meanwhile: until it executes its own
// program it would have the file open too, and the kernel executes none that somebody can write to.
func writeProgram(t testing.TB, name string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(name, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

func testBinary(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}
