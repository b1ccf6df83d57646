package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	_ "k8s.io/kubernetes/pkg/kubelet/status"
	"k8s.io/kubernetes/pkg/util/tail"
	"k8s.io/utils/buffer"

	"monoplane.dev/nodeagent/endmessage"
	"monoplane.dev/nodeagent/podstate"
)

// kubeletStatus is what a kubelet makes of a status before it writes it.
//
//go:linkname kubeletStatus k8s.io/kubernetes/pkg/kubelet/status.normalizeStatus
func kubeletStatus(pod *v1.Pod, status *v1.PodStatus) *v1.PodStatus

// someLog writes a log in the form of CRI.
func someLog(t *testing.T, r *rand.Rand, path string) {
	t.Helper()
	var b strings.Builder
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range r.IntN(200) {
		at = at.Add(time.Duration(r.IntN(1e9)))
		text := strings.Repeat(pick(r, []string{"a", "word ", "é", "\xff"}), r.IntN(60))
		fmt.Fprintf(&b, "%s %s %s %s\n", at.Format(time.RFC3339Nano), pick(r, []string{"stdout", "stderr"}),
			pick(r, []string{"F", "F", "F", "P"}), text)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a container left says the same as with kubelets. Texts that are not UTF-8 cannot be told, and become so before
// they are compared; what cannot be read is said nothing of here, where kubelets name the path.
//
// spec: CTR-1
func TestContainersLeaveTheSameMessages(t *testing.T) {
	r := random(t)
	dir := t.TempDir()
	file, log := filepath.Join(dir, "message"), filepath.Join(dir, "log")
	kinds := map[string]int{}
	for range *count {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if r.IntN(4) > 0 {
			text := strings.Repeat(pick(r, []string{"x", "line\n", "ü", "\xfe"}), pick(r, []int{0, 1, 100, 1365, 4096, 5000}))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		someLog(t, r, log)
		path := pick(r, []string{"/dev/termination-log", "/dev/termination-log", "tmp/last", ""})
		policy := pick(r, []string{"File", "FallbackToLogsOnError", "FallbackToLogsOnError"})
		s := &runtimeapi.ContainerStatus{
			State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: pick(r, []int32{0, 0, 1, 137}),
			Reason:  pick(r, []string{"", "Error", "OOMKilled", "ContainerCannotRun"}),
			Message: pick(r, []string{"", "", "the runtime says"}), LogPath: log,
			Annotations: map[string]string{
				"io.kubernetes.container.terminationMessagePath":   path,
				"io.kubernetes.container.terminationMessagePolicy": policy,
			},
			Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: dir}},
		}
		if path != "" { // one that is not mounted is another thing: runtimes without mounts read it themselves
			s.Mounts = append(s.Mounts, &runtimeapi.Mount{ContainerPath: "/" + strings.TrimPrefix(path, "/"), HostPath: file})
		} else {
			s.Message = ""
		}

		fallback := policy == "FallbackToLogsOnError" && s.GetExitCode() != 0 && s.GetReason() != "ContainerCannotRun"
		// From here on as package kuberuntime puts the parts together, which exports none of it.
		want := ""
		if path != "" {
			text, _, err := tail.ReadAtMost(file, kubecontainer.MaxContainerTerminationMessageLength)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			want = string(text)
		}
		look := fallback && want == ""
		if look {
			lines := int64(kubecontainer.MaxContainerTerminationMessageLogLines)
			ring, err := buffer.NewTypedRingFixed[byte](kubecontainer.MaxContainerTerminationMessageLogLength)
			if err != nil {
				t.Fatal(err)
			}
			options := &logs.LogOptions{TailLines: &lines}
			if err := logs.ReadLogs(context.Background(), log, "", options, nil, ring, ring); err != nil {
				t.Fatal(err)
			}
			want = string(ring.Slice())
		}
		if s.GetMessage() != "" && want != "" {
			want = s.GetMessage() + ": " + want
		} else if want == "" {
			want = s.GetMessage()
		}
		want = strings.ToValidUTF8(want, "?")
		got := endmessage.Of(s, func(string) bool { return true })
		if got != want {
			t.Fatalf("%v\nKubernetes: %d %q\nMonoplane:  %d %q", s, len(want), want, len(got), got)
		}
		kinds[fmt.Sprint(look, want != "")]++
	}
	if len(kinds) < 3 && *count >= 200 {
		t.Errorf("only these were met: %v", kinds)
	}
}

// Messages are cut alike when a pod has many containers. spec: CTR-1
func TestMessagesShareABound(t *testing.T) {
	r := random(t)
	for range *count {
		p := minimal()
		p.Spec.InitContainers, p.Spec.Containers = nil, make([]v1.Container, 1+r.IntN(9))
		for range r.IntN(4) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{})
		}
		text := strings.Repeat(pick(r, []string{"x", "ü"}), r.IntN(7000))
		status := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: text}}}}}
		want := strings.ToValidUTF8(kubeletStatus(p, status).ContainerStatuses[0].State.Terminated.Message, "?")
		if got := podstate.Bounded(text, len(p.Spec.InitContainers)+len(p.Spec.Containers)); got != want {
			t.Fatalf("%d containers, %d bytes: %d for Kubernetes, %d for Monoplane", len(p.Spec.InitContainers)+
				len(p.Spec.Containers), len(text), len(want), len(got))
		}
	}
}
