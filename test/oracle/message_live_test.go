//go:build kubernetes

package oracle

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/kubernetes/pkg/kubelet/container"
	_ "k8s.io/kubernetes/pkg/kubelet/status"
	"k8s.io/kubernetes/pkg/util/tail"
	"k8s.io/utils/buffer"
)

// kubeletStatus is what a kubelet makes of a status before it writes it.
//
//go:linkname kubeletStatus k8s.io/kubernetes/pkg/kubelet/status.normalizeStatus
func kubeletStatus(pod *v1.Pod, status *v1.PodStatus) *v1.PodStatus

// theirMessage puts the parts together as package kuberuntime does, which exports none of it.
func theirMessage(t testing.TB, e ended) (out leftMessage) {
	dir := t.TempDir()
	if e.Path != "" && e.Message != nil {
		file := filepath.Join(dir, "message")
		if err := os.WriteFile(file, e.Message, 0o600); err != nil {
			t.Fatal(err)
		}
		text, _, err := tail.ReadAtMost(file, container.MaxContainerTerminationMessageLength)
		if err != nil {
			t.Fatal(err)
		}
		out.Text = string(text)
	}
	out.OfLog = e.Policy == "FallbackToLogsOnError" && e.ExitCode != 0 && e.Reason != "ContainerCannotRun" &&
		out.Text == ""
	if out.OfLog {
		log := filepath.Join(dir, "log")
		if err := os.WriteFile(log, e.Log, 0o600); err != nil {
			t.Fatal(err)
		}
		lines := int64(container.MaxContainerTerminationMessageLogLines)
		ring, err := buffer.NewTypedRingFixed[byte](container.MaxContainerTerminationMessageLogLength)
		if err != nil {
			t.Fatal(err)
		}
		options := &logs.LogOptions{TailLines: &lines}
		if err := logs.ReadLogs(context.Background(), log, "", options, nil, ring, ring); err != nil {
			t.Fatal(err)
		}
		out.Text = string(ring.Slice())
	}
	if e.Runtime != "" && out.Text != "" {
		out.Text = e.Runtime + ": " + out.Text
	} else if out.Text == "" {
		out.Text = e.Runtime
	}
	out.Text = strings.ToValidUTF8(out.Text, "?")
	return out
}

func theirBoundedMessage(_ testing.TB, p *v1.Pod, text string) string {
	status := kubeletStatus(p, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: text}}}}})
	return strings.ToValidUTF8(status.ContainerStatuses[0].State.Terminated.Message, "?")
}
