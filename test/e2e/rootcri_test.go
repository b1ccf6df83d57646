//go:build rootonly

package e2e_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/test/containerd"
)

// boxed returns a pod of an image that runs a shell script in a container of its own.
func boxed(name, script string) *corev1.Pod {
	p := podOf(name, script)
	p.Spec.Containers[0].Image = containerd.BoxImage
	return p
}

const (
	stubbornBox = `trap "" TERM; while :; do sleep 0.05; done`
	politeBox   = `trap 'echo goodbye; exit 0' TERM; echo trapped; while :; do sleep 0.05; done`
	countsBox   = `n=0; while :; do n=$((n+1)); echo line $n; sleep 0.05; done`
)

// untilTrapped waits until the shell of a pod has set its trap: the kernel drops a TERM that a container's first
// process has no handler for.
func (p pods) untilTrapped(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the trap of pod "+name, func() (bool, string) {
		out := p.logs(t, name)
		return strings.Contains(out, "trapped\n"), out
	})
}

// onContainerd is a cluster whose pods a real containerd runs.
type onContainerd struct {
	*cluster
	pods

	runtime *daemon
}

// TestRootContainerd shows on a real containerd what the other tests show on the host runtime: the life of pods with
// images, networks and isolation of their own.
func TestRootContainerd(t *testing.T) {
	t.Parallel()
	ctd := newContainerd(t)
	c := startIn(t, shortDir(t), "--runtime-endpoint", ctd.Endpoint())
	on := onContainerd{c, c.pods(t, "default"), ctd}
	t.Run("pods", func(t *testing.T) {
		for _, tc := range []struct {
			name string
			run  func(onContainerd, *testing.T)
		}{
			{"node", onContainerd.node},
			{"isolation", onContainerd.isolation},
			{"network", onContainerd.network},
			{"node's network", onContainerd.hostNetwork},
			{"user of the image", onContainerd.user},
			{"security context", onContainerd.security},
			{"no root", onContainerd.noRoot},
			{"names", onContainerd.names},
			{"shared processes", onContainerd.sharedProcesses},
			{"grace", onContainerd.grace},
			{"force", onContainerd.force},
			{"back-off", onContainerd.backoff},
			{"images", onContainerd.images},
			{"memory", onContainerd.memory},
			{"the pod's limits", onContainerd.wholePod},
			{"sidecar", onContainerd.sidecar},
			{"sandbox", onContainerd.sandboxDies},
			{"pull credentials", onContainerd.pullCredentials},
			{"runtime class", onContainerd.runtimeClass},
			{"profiles", onContainerd.profiles},
			{"parts of the machine", onContainerd.machineParts},
			{"rotation", onContainerd.rotation},
			{"image collection", onContainerd.imageCollection},
			{"stats", onContainerd.stats},
			{"dead containers", onContainerd.deadContainers},
			{"streams", onContainerd.streams},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				tc.run(on, t)
			})
		}
	})
	t.Run("lifecycle", on.lifecycle)
	t.Run("bad input", on.bad)
	t.Run("server killed", on.serverIsKilled)
	next := startIn(t, c.dir, "--runtime-endpoint", ctd.Endpoint())
	on = onContainerd{next, next.pods(t, "default"), ctd}
	t.Run("server back", on.serverIsBack)
	t.Run("two clusters", on.twoClusters)
	t.Run("runtime killed", on.runtimeIsKilled)
}

// spec: NODE-1
func (c onContainerd) node(t *testing.T) {
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := nodes.Items[0].Status
	if !strings.HasPrefix(status.NodeInfo.ContainerRuntimeVersion, "containerd://") {
		t.Errorf("runtime %q", status.NodeInfo.ContainerRuntimeVersion)
	}
	ready := slices.ContainsFunc(status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		t.Errorf("conditions: %+v", status.Conditions)
	}
}

// A container has its own host name, processes and files, and cannot change the node's kernel.
// spec: NET-1
func (c onContainerd) isolation(t *testing.T) {
	p := boxed("isolation",
		`exec 2>&1; hostname; echo $$; ls /bin/bash; cd /proc/sys/kernel; v=$(cat panic); echo $v >panic || echo cannot`)
	c.create(t, p)
	c.untilPhase(t, p.Name, corev1.PodSucceeded)
	got := c.logs(t, p.Name)
	if !strings.HasPrefix(got, "isolation\n1\nls: /bin/bash: No such file") ||
		!strings.HasSuffix(got, "Read-only file system\ncannot\n") {
		t.Errorf("it printed %q", got)
	}
}

// Each pod has an address, at which other pods reach it.
// spec: NET-1, LIFE-9
func (c onContainerd) network(t *testing.T) {
	server := c.run(t, boxed("server", `exec httpd -f -p 8080 -h /etc`))
	addr, err := netip.ParseAddr(server.Status.PodIP)
	if err != nil || !netip.MustParsePrefix(containerd.PodRange).Contains(addr) {
		t.Fatalf("the address is %q", server.Status.PodIP)
	}
	c.create(t, boxed("client", fmt.Sprintf(`wget -q -O - http://%s:8080/hostname`, addr)))
	c.untilPhase(t, "client", corev1.PodSucceeded)
	if got := c.logs(t, "client"); got != "server\n" {
		t.Errorf("the client got %q", got)
	}
}

// lifecycle plays the scenarios of package lifecycle with containers. They find the program and the file of
// their marks in a directory of the machine.
func (c onContainerd) lifecycle(t *testing.T) {
	programs := newBoxedPrograms(t)
	namespace := c.namespace(t)
	for _, s := range drawScenes(t, "containerd") {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			journal := programs.newJournal(t, 0)
			c.scenes(t, namespace).play(t, s, boxedScenario(s, journal), journal)
		})
	}
}

// spec: NET-1
func (c onContainerd) hostNetwork(t *testing.T) {
	p := boxed("hostnetwork", `hostname; exec sleep 3600`)
	p.Spec.HostNetwork = true
	got := c.run(t, p).Status
	if got.PodIP == "" || got.PodIP != got.HostIP {
		t.Errorf("the pod's address is %q, the node's %q", got.PodIP, got.HostIP)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node's host name", func() (bool, string) {
		text := c.logs(t, p.Name)
		return text == name+"\n", text
	})
}

// The image says the program and its user, who can leave a message.
// spec: CTR-1, CTR-7
func (c onContainerd) user(t *testing.T) {
	p := boxed("user", "")
	p.Spec.Containers[0] = corev1.Container{Name: "main", Image: containerd.UserImage, ImagePullPolicy: corev1.PullNever}
	c.create(t, p)
	s := c.untilPhase(t, p.Name, corev1.PodFailed).Status.ContainerStatuses[0]
	end := s.State.Terminated
	if end == nil || end.ExitCode != 5 || end.Message != "last words\n" || s.Image != containerd.UserImage ||
		!strings.HasPrefix(s.ImageID, "sha256:") {
		t.Errorf("status: %+v", s)
	}
	if got := c.logs(t, p.Name); got != "uid=1000 gid=1000 groups=1000\n/tmp\n" {
		t.Errorf("it printed %q", got)
	}
}

// spec: DEL-1, DEL-7, LIFE-5, TERM-1, TERM-2
func (c onContainerd) grace(t *testing.T) {
	stubborn, polite := c.run(t, withGrace(boxed("stubborn", stubbornBox), 3)),
		c.run(t, withGrace(boxed("polite", politeBox), 600))
	pid, phases, politePhases := c.runtime.pid(t, stubborn), c.phases(t, stubborn), c.phases(t, polite)
	c.untilTrapped(t, "polite")
	began := time.Now()
	c.delete(t, "stubborn", -1)
	c.delete(t, "polite", -1)
	c.untilGone(t, stubborn)
	if took := time.Since(began); took < 3*time.Second || took > 3*time.Second+slack {
		t.Errorf("deletion took %v, want 3 s", took)
	}
	if alive(pid) {
		t.Error("the object is gone, but its process is not")
	}
	if got := <-phases; !slices.Equal(got, []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed}) {
		t.Errorf("phases until the object went: %v, want Running, Failed", got)
	}
	if got := <-politePhases; !slices.Equal(got, []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}) {
		t.Errorf("phases of the polite pod: %v, want Running, Succeeded", got)
	}
}

// spec: DEL-4, DEL-9
func (c onContainerd) force(t *testing.T) {
	pod := c.run(t, withGrace(boxed("forced", stubbornBox), 600))
	pid := c.runtime.pid(t, pod)
	c.delete(t, "forced", 0)
	if _, err := c.Get(t.Context(), "forced", metav1.GetOptions{}); err == nil {
		t.Error("the object is still there")
	}
	gone(t, pid)
}

// spec: CTR-2, CTR-3
func (c onContainerd) backoff(t *testing.T) {
	c.create(t, withRestart(boxed("crashes", `echo run; exit 7`), corev1.RestartPolicyAlways))
	c.until(t, "crashes", "backs off", func(p *corev1.Pod) bool {
		if len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount == 1 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" &&
			s.LastTerminationState.Terminated != nil && s.LastTerminationState.Terminated.ExitCode == 7
	})
	log, err := c.GetLogs("crashes", &corev1.PodLogOptions{Previous: true}).DoRaw(t.Context())
	if err != nil || string(log) != "run\n" {
		t.Errorf("the previous log: %q, %v", log, err)
	}
}

// spec: CTR-4, CTR-6
func (c onContainerd) images(t *testing.T) {
	with := func(name, image string, policy corev1.PullPolicy) {
		p := boxed(name, "")
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, policy
		c.create(t, p)
	}
	const nobody = "localhost:1/absent:1" // nobody listens there
	with("never", "localhost/absent:1", corev1.PullNever)
	with("absent", nobody, corev1.PullIfNotPresent)
	with("name", "localhost/UPPER:1", corev1.PullIfNotPresent)
	missing := boxed("command", "")
	missing.Spec.Containers[0].Command = []string{"/no/such/program"}
	c.create(t, missing)

	waits := func(name, reason, message string) {
		t.Helper()
		c.until(t, name, reason, func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return p.Status.Phase == corev1.PodPending && len(s) > 0 && s[0].State.Waiting != nil &&
				s[0].State.Waiting.Reason == reason && strings.Contains(s[0].State.Waiting.Message, message)
		})
	}
	waits("never", "ErrImageNeverPull", "localhost/absent:1")
	waits("name", "InvalidImageName", "localhost/UPPER:1")
	c.told(t, "absent", "Failed", "connection refused")
	end := c.untilPhase(t, "command", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	if end == nil || end.Reason != "StartError" || end.ExitCode != 128 ||
		!strings.Contains(end.Message, "/no/such/program") {
		t.Errorf("a command that does not exist: %+v", end)
	}
	waits("absent", "ImagePullBackOff", `"`+nobody+`": ErrImagePull: `)
}

// spec: CTR-5, CTR-10
func (c onContainerd) memory(t *testing.T) {
	p := boxed("memory", `x=x; while :; do x=$x$x; done`)
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	other := boxed("", politeBox).Spec.Containers[0]
	other.Name = "other"
	p.Spec.Containers = append([]corev1.Container{other}, p.Spec.Containers...) // it starts first
	c.create(t, p)
	got := c.until(t, "memory", "out of memory", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 2 && s[1].State.Terminated != nil && s[1].State.Terminated.Reason == "OOMKilled"
	})
	if s := got.Status.ContainerStatuses; s[1].State.Terminated.ExitCode != 137 || s[0].State.Running == nil {
		t.Errorf("statuses: %+v", s)
	}
}

// A sidecar serves the container on the pod's localhost and ends after it.
// spec: INIT-1, INIT-4, NET-1
func (c onContainerd) sidecar(t *testing.T) {
	p := boxed("sidecar", `until wget -q -O - http://127.0.0.1:8080/hostname; do sleep 0.05; done`)
	first, side := boxed("", `echo first`).Spec.Containers[0],
		boxed("", `exec httpd -f -p 8080 -h /etc`).Spec.Containers[0]
	always := corev1.ContainerRestartPolicyAlways
	first.Name, side.Name, side.RestartPolicy = "first", "side", &always
	p.Spec.InitContainers = []corev1.Container{first, side}
	c.create(t, p)
	got := c.untilPhase(t, "sidecar", corev1.PodSucceeded).Status.InitContainerStatuses
	if log := c.logs(t, "sidecar"); !strings.HasSuffix(log, "sidecar\n") {
		t.Errorf("the container printed %q", log)
	}
	if len(got) != 2 || got[0].State.Terminated == nil || got[0].State.Terminated.ExitCode != 0 ||
		got[1].State.Terminated == nil {
		t.Errorf("init containers: %+v", got)
	}
}

// The pod's sandbox dies; its container runs again in another.
// spec: INIT-2, CTR-2
func (c onContainerd) sandboxDies(t *testing.T) {
	p := withRestart(boxed("sandbox", `echo $HOSTNAME; `+politeBox), corev1.RestartPolicyAlways)
	pid := c.runtime.pid(t, c.run(t, p))
	if err := syscall.Kill(sandboxOf(t, pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.until(t, "sandbox", "again", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount == 1 && s.State.Running != nil && p.Status.PodIP != ""
	})
	if alive(pid) {
		t.Error("the first process still runs")
	}
}

// serverIsKilled ends the server as a crash would, with pods in several states.
func (c onContainerd) serverIsKilled(t *testing.T) {
	c.run(t, withRestart(boxed("runs", countsBox), corev1.RestartPolicyAlways))
	ends := c.run(t, boxed("ends", `trap 'echo last words; exit 42' TERM; echo trapped; while :; do sleep 0.05; done`))
	c.untilTrapped(t, "ends")
	stops := c.run(t, withGrace(boxed("stops", stubbornBox), 10))
	vanishes := c.run(t, withGrace(boxed("vanishes", stubbornBox), 600))
	endsPid, stopsPid, vanishesPid := c.runtime.pid(t, ends), c.runtime.pid(t, stops), c.runtime.pid(t, vanishes)
	c.delete(t, "stops", -1)
	c.delete(t, "vanishes", 0)
	c.kill(t)
	for name, pid := range map[string]int{"ends": endsPid, "stops": stopsPid, "vanishes": vanishesPid} {
		if !alive(pid) {
			t.Errorf("pod %s died with the server", name)
		}
	}
	if err := syscall.Kill(endsPid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	gone(t, endsPid)
}

// serverIsBack checks that the next server goes on where the killed one was.
// spec: DEL-9, DEL-10, DEL-13, NODE-2, LIFE-2
func (c onContainerd) serverIsBack(t *testing.T) {
	end := c.untilPhase(t, "ends", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	if end == nil || end.ExitCode != 42 || c.logs(t, "ends") != "trapped\nlast words\n" {
		t.Errorf("the end while the server was dead: %+v", end)
	}
	c.untilGone(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stops"}})
	runs := c.untilPhase(t, "runs", corev1.PodRunning)
	if s := runs.Status.ContainerStatuses[0]; s.RestartCount != 0 || !alive(c.runtime.pid(t, runs)) {
		t.Errorf("the adopted pod: %+v", s)
	}
	c.wantNoGap(t, "runs")
	eventually(t, "end of the forced pod's container", func() (bool, string) {
		out, err := c.runtime.Ctr("containers", "ls", "--quiet", `labels."io.kubernetes.pod.name"==vanishes`)
		return err == nil && out == "", out
	})
}

// Another cluster on the same containerd neither ends this one's pods nor takes them for its own.
func (c onContainerd) twoClusters(t *testing.T) {
	pid := c.runtime.pid(t, c.untilPhase(t, "runs", corev1.PodRunning))
	other := startIn(t, shortDir(t), "--runtime-endpoint", c.runtime.Endpoint())
	mine := other.pods(t, "default").run(t, boxed("runs", countsBox))
	minePid := c.runtime.pid(t, mine)
	if err := other.removePods(); err != nil {
		t.Fatal(err)
	}
	gone(t, minePid)
	if !alive(pid) {
		t.Error("the first cluster's process is gone")
	}
}

// containerd is killed: containers go on, and what was asked for meanwhile is done when it is back.
func (c onContainerd) runtimeIsKilled(t *testing.T) {
	runs := c.untilPhase(t, "runs", corev1.PodRunning)
	pid := c.runtime.pid(t, runs)
	leaves := c.run(t, boxed("leaves", politeBox))
	c.runtime.kill(t)
	c.delete(t, "leaves", -1)
	if !alive(pid) {
		t.Error("the container died with containerd")
	}
	c.runtime.start(t)
	c.untilGone(t, leaves)
	if s := c.untilPhase(t, "runs", corev1.PodRunning).Status.ContainerStatuses[0]; s.RestartCount != 0 || !alive(pid) {
		t.Errorf("after containerd came back: %+v", s)
	}
	c.wantNoGap(t, "runs")
}

// pid returns the process of a pod's first container.
func (c *daemon) pid(t *testing.T, p *corev1.Pod) int {
	t.Helper()
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	out, err := c.Ctr("tasks", "ls")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == id {
			pid, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("container %q of pod %s is not in\n%s", id, p.Name, out)
	return 0
}

// sandboxOf returns the first process of the sandbox that a container's process is in: it shares the network.
func sandboxOf(t *testing.T, pid int) int {
	t.Helper()
	network := func(pid int) string {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)) // A process that has ended is in none.
		return link
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		other, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		command, _ := os.ReadFile(path) // As above.
		if other != pid && network(other) == network(pid) && string(command) == "sleep\x002147483647\x00" {
			return other
		}
	}
	t.Fatalf("process %d shares its network with no sandbox", pid)
	return 0
}
