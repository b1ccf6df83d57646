package host

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/podlog"
)

// highWater returns the most memory, in KiB, that a process has had.
func highWater(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("the kernel does not say how much memory a process has had")
	return 0
}

// A container that writes as fast as it can fills neither the memory nor, as long as its log is rotated, the disk; its
// neighbours go on, and who follows the log reads on to its end. spec: CTR-8, SAFE-6
func TestLogFlood(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim writes the log")
	const (
		total, size, keep = 64 << 20, 1 << 20, 3
		line              = "a line of a flood that does not end"
		most              = 16 << 10 // KiB
	)
	n := newNode(t)
	sb, neighbour := n.sandbox("flood"), n.shell("neighbour", "exec sleep 1000")
	before := highWater(t, n.shimPID(sb))
	id := n.run(sb, containerConfig("c", "/bin/sh", "-c", fmt.Sprintf("yes %s | head -c %d; echo; echo the end", line,
		total)))
	path := n.status(id).GetLogPath()
	exited := func() bool {
		is, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		return err != nil || is.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	}

	var last string
	read, torn := 0, 0
	followed := make(chan error, 1)
	go func() {
		rest := ""
		followed <- podlog.Read(t.Context(), path, podlog.Options{Follow: true, Tail: -1, Limit: -1},
			func() bool { return !exited() },
			func(b []byte) error {
				read += len(b)
				text := rest + string(b)
				for {
					l, more, whole := strings.Cut(text, "\n")
					if !whole {
						rest = text
						return nil
					}
					if last, text = l, more; l != line {
						torn++
					}
				}
			})
	}()

	rotations := 0
	for !exited() {
		err := podlog.Rotate(path, size, keep, time.Now(), func() error {
			rotations++
			_, err := n.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
			return err
		})
		if err != nil && !exited() {
			t.Fatal(err)
		}
		files, err := podlog.Files(path)
		if err != nil || len(files) > keep {
			t.Fatalf("%d files, %v", len(files), err)
		}
		ran, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: neighbour, Cmd: []string{"true"}})
		if err != nil || ran.GetExitCode() != 0 {
			t.Fatalf("a neighbour: %v, %v", ran, err)
		}
	}
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	// The last line of the flood may be cut off by its size, and the line after it is empty or "the end". Who follows too
	// slowly is overtaken by the rotation, which tears a line each time.
	if last != "the end" || torn > 3+rotations || read == 0 {
		t.Errorf("%d bytes were followed, with %d lines that were not written; the last is %q", read, torn, last)
	}
	if grown := highWater(t, n.shimPID(sb)) - before; grown > most {
		t.Errorf("the shim took up %d KiB for %d KiB of output", grown, total>>10)
	}
	t.Logf("%d rotations; %d of %d bytes were followed", rotations, read, total)
}
