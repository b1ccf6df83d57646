package nodeagent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/criconfig"
)

// longest is a pod's name of as many bytes as a name can have.
var longest = strings.Repeat("n", 253)

// longNamed gives the pod and its container names as long as they can be.
func longNamed(p *corev1.Pod) {
	p.Metadata.Name = longest
	p.Spec.Containers[0].Name = strings.Repeat("c", 63)
	p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
}

// A pod whose namespace, name and uid are longer together than a file's name can be runs, and its deletion ends.
func TestLongNames(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := t.TempDir()
		w.cfg.PodLogDir, w.cfg.LogMaxSize = dir, 1
		w.start()
		p := w.create("", edit(longNamed), annotated("log", "hello"))
		w.settle()
		w.phase(longest, "Running")
		path := filepath.Join(dir, criconfig.PodDir("default", longest, p.GetMetadata().GetUid()),
			criconfig.LogName(p.GetSpec().GetContainers()[0].GetName(), 0))
		if text, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(text), "hello\n") {
			t.Errorf("log: %q, %v", text, err)
		}
		time.Sleep(11 * time.Second) // it is rotated
		if aside, err := filepath.Glob(path + ".*"); err != nil || len(aside) != 1 {
			t.Errorf("rotated: %v, %v", aside, err)
		}
		w.delete(longest, 1)
		w.settle()
		if w.get(longest) != nil {
			t.Error("the pod is still there")
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// What can never succeed ends the pod with a reason, and the pod can be deleted; what somebody may mend is tried
// again.
func TestHopeless(t *testing.T) {
	for _, c := range []struct {
		name          string
		prepare       func(w *world)
		phase, reason string
	}{
		{"an invalid sandbox", func(w *world) {
			w.setFault(fails("RunPodSandbox", codes.InvalidArgument))
		}, "Failed", "FailedCreatePodSandBox"},
		{"a sandbox that cannot be made now", func(w *world) {
			w.setFault(fails("RunPodSandbox", codes.Unknown))
		}, "Pending", ""},
		{"an invalid container", func(w *world) {
			w.setFault(fails("CreateContainer", codes.InvalidArgument))
		}, "Failed", "CreateContainerError"},
		{"a container that cannot be made now", func(w *world) {
			w.setFault(fails("CreateContainer", codes.FailedPrecondition))
		}, "Pending", ""},
		{"a path that is too long", func(w *world) {
			w.cfg.PodLogDir = filepath.Join(t.TempDir(), strings.Repeat("d/", 2048))
		}, "Failed", "FailedCreatePodSandBox"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c.prepare(w)
				w.start()
				w.create("a", grace(1))
				time.Sleep(time.Hour)
				s := w.phase("a", c.phase).GetStatus()
				if s.GetReason() != c.reason || (c.reason == "") != (s.GetMessage() == "") {
					t.Errorf("status: %v", s)
				}
				// kubectl shows what a container says before what the pod does.
				ended := s.GetContainerStatuses()[0].GetState().GetTerminated()
				if c.reason == "CreateContainerError" && (ended.GetReason() != c.reason || ended.GetMessage() == "") {
					t.Errorf("its container has ended with %v", ended)
				}
				w.delete("a", -1)
				time.Sleep(time.Minute)
				if w.get("a") != nil {
					t.Error("a is still there")
				}
				w.empty()
			})
		})
	}
}

// A container that ran once is tried again when the runtime calls it invalid: it cannot be that.
func TestInvalidAfterItRan(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exit-after", "5s"))
		w.settle()
		w.setFault(fails("CreateContainer", codes.InvalidArgument))
		time.Sleep(time.Hour)
		p := w.phase("a", "Running")
		wait := p.GetStatus().GetContainerStatuses()[0].GetState().GetWaiting()
		if wait.GetReason() != "CreateContainerError" {
			t.Errorf("status: %v", p.GetStatus())
		}
		w.setFault(nil)
		time.Sleep(6 * time.Minute)
		if got := w.starts("a"); len(got) < 2 {
			t.Errorf("started %v", got)
		}
	})
}

func fails(method string, code codes.Code) func(method, id string) error {
	return func(called, _ string) error {
		if called != method {
			return nil
		}
		return status.Errorf(code, "%s fails", method)
	}
}
