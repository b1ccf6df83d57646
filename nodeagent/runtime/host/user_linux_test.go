package host

import (
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func withSecurity(
	config *runtimeapi.ContainerConfig, sec *runtimeapi.LinuxContainerSecurityContext, oom int64,
) *runtimeapi.ContainerConfig {
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: sec,
		Resources: &runtimeapi.LinuxContainerResources{OomScoreAdj: oom}}
	return config
}

func TestOOMScore(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("score")
	id := n.run(sb, withSecurity(containerConfig("c", "sleep", "1000"), nil, 900))
	b, err := os.ReadFile("/proc/" + strconv.Itoa(n.pid(id)) + "/oom_score_adj")
	if err != nil || strings.TrimSpace(string(b)) != "900" {
		t.Errorf("score %q %v", b, err)
	}
	ours, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	id = n.run(sb, containerConfig("plain", "sleep", "1000"))
	if b, err = os.ReadFile("/proc/" + strconv.Itoa(n.pid(id)) + "/oom_score_adj"); err != nil ||
		string(b) != string(ours) {
		t.Errorf("score %q %v; want that of the node agent, %q", b, err, ours)
	}
}

func TestRunAsUser(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("no user nobody: ", err)
	}
	uid, _ := strconv.ParseInt(nobody.Uid, 10, 64)
	if uid == int64(os.Geteuid()) {
		uid = 0 // Nobody may not become root.
	}
	config := withSecurity(containerConfig("c", "/bin/sh", "-c", "id -u; id -g; id -G; echo again > /dev/stdout"),
		&runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: &runtimeapi.Int64Value{Value: uid}, RunAsGroup: &runtimeapi.Int64Value{Value: 1234},
			SupplementalGroups: []int64{77},
		}, 0)
	sb := n.sandbox("user")
	if os.Geteuid() != 0 {
		if _, err := n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb,
			Config: config}); err == nil {
			t.Error("an unprivileged runtime agreed to run as another user")
		}
		return
	}
	id := n.run(sb, config)
	n.wait(id)
	want := "stdout F " + strconv.FormatInt(uid, 10) + "\nstdout F 1234\nstdout F 1234 77\nstdout F again\n"
	if got := n.logText(id); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
