package oracle

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/endmessage"
	"monoplane.dev/nodeagent/podstate"
)

// someLog is a log in the form of CRI.
func someLog(r *rand.Rand) []byte {
	var b strings.Builder
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range r.IntN(200) {
		at = at.Add(time.Duration(r.IntN(1e9)))
		text := strings.Repeat(pick(r, []string{"a", "word ", "é", "\xff"}), r.IntN(60))
		fmt.Fprintf(&b, "%s %s %s %s\n", at.Format(time.RFC3339Nano), pick(r, []string{"stdout", "stderr"}),
			pick(r, []string{"F", "F", "F", "P"}), text)
	}
	return []byte(b.String())
}

// ended is a container that has ended, as files and its runtime have it.
type ended struct {
	// Message is what the container wrote; nil when there is no file.
	Message, Log []byte
	// Path and Policy are where it is to write, and whether its log is looked at.
	Path, Policy    string
	ExitCode        int32
	Reason, Runtime string
}

// leftMessage is what a container left, and whether its log was looked at.
type leftMessage struct {
	Text  string
	OfLog bool
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
		var e ended
		if r.IntN(4) > 0 {
			text := strings.Repeat(pick(r, []string{"x", "line\n", "ü", "\xfe"}), pick(r, []int{0, 1, 100, 1365, 4096, 5000}))
			e.Message = []byte(text)
			if err := os.WriteFile(file, e.Message, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e.Log = someLog(r)
		if err := os.WriteFile(log, e.Log, 0o600); err != nil {
			t.Fatal(err)
		}
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

		e.Path, e.Policy, e.ExitCode, e.Reason, e.Runtime = path, policy, s.GetExitCode(), s.GetReason(), s.GetMessage()
		theirs := ask[leftMessage](t, "messages", e)
		want := theirs.Text
		got := endmessage.Of(s, func(string) bool { return true })
		if got != want {
			t.Fatalf("%v\nKubernetes: %d %q\nMonoplane:  %d %q", s, len(want), want, len(got), got)
		}
		kinds[fmt.Sprint(theirs.OfLog, want != "")]++
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
		want := ask[string](t, "bounded-messages", p, text)
		if got := podstate.Bounded(text, len(p.Spec.InitContainers)+len(p.Spec.Containers)); got != want {
			t.Fatalf("%d containers, %d bytes: %d for Kubernetes, %d for Monoplane", len(p.Spec.InitContainers)+
				len(p.Spec.Containers), len(text), len(want), len(got))
		}
	}
}
