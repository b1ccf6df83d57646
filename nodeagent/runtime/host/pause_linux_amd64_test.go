package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pausedAtFork stops the main thread of a shim, which makes all its forks, right before its next one, and calls paused
// there. Then it lets it go on.
func pausedAtFork(t *testing.T, shimPID int, ready chan<- struct{}, paused func()) error {
	runtime.LockOSThread() // A tracer is a thread.
	defer runtime.UnlockOSThread()
	if err := syscall.PtraceAttach(shimPID); err != nil {
		return err
	}
	var status syscall.WaitStatus
	const clones = 0x40000000 // __WALL
	if _, err := syscall.Wait4(shimPID, &status, clones, nil); err != nil {
		return err
	}
	close(ready)
	sig := 0
	for {
		if err := syscall.PtraceSyscall(shimPID, sig); err != nil {
			return err
		}
		if _, err := syscall.Wait4(shimPID, &status, clones, nil); err != nil {
			return err
		}
		sig = 0
		if status.StopSignal() != syscall.SIGTRAP {
			sig = int(status.StopSignal()) // Go's runtime preempts itself by signals.
			continue
		}
		var regs syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(shimPID, &regs); err != nil {
			return err
		}
		const clone3 = 435
		isThread := regs.Orig_rax == syscall.SYS_CLONE && regs.Rdi&syscall.CLONE_THREAD != 0
		if regs.Orig_rax == syscall.SYS_CLONE && !isThread || regs.Orig_rax == syscall.SYS_VFORK || regs.Orig_rax == clone3 {
			paused()
			return syscall.PtraceDetach(shimPID)
		}
	}
}

// A shim that is paused between its last look at the clock and the fork starts the container late. That is harmless,
// because nobody has said meanwhile that it would not: the start stays unknown, then it is seen to run, once, and a
// stop ends it.
//
// spec: SAFE-4
func TestPauseBetweenClockAndFork(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "shims are called the same way")
	onlyHost(t, "the clock is looked at before the fifo is opened")
	for _, then := range []string{"stop", "remove"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, short(20*time.Second, never))
			sb := n.plainSandbox("paused") // A setup process would look at the clock once more, after the fork.
			file := filepath.Join(n.dir, "ran")
			var id string // Read by the tracer once late is closed.
			reached := make(chan struct{})
			ready, traced := make(chan struct{}), make(chan error, 1)
			removed, late := make(chan error, 1), make(chan struct{})
			go func() {
				traced <- pausedAtFork(t, n.shimPID(sb), ready, func() {
					close(reached)
					<-late
					if st := n.status(id); st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
						t.Errorf("an unknown outcome is reported as %v", st)
					}
					if then == "remove" {
						go func() {
							_, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
							removed <- err
						}()
					}
				})
			}()
			select {
			case <-ready:
			case err := <-traced:
				t.Skip("no process can be traced: ", err)
			}
			for within, attempt := time.Second, uint32(0); ; within, attempt = 2*within, attempt+1 {
				config := containerConfig("c", "/bin/sh", "-c", "echo $$ >> "+file+"; exec sleep 1000")
				config.Metadata.Attempt = attempt
				id = n.create(sb, config)
				code := n.startWithin(id, within)
				eventually(t, "the start is at the fork, or refused", func() bool {
					return isClosed(reached) || n.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
				})
				if isClosed(reached) {
					if code != codes.DeadlineExceeded {
						t.Errorf("%s", code)
					}
					break
				}
				// The machine was so slow that the deadline had passed before the fork.
			}
			close(late)
			if err := <-traced; err != nil {
				t.Fatal(err)
			}
			if then == "remove" {
				if err := <-removed; err != nil {
					t.Error(err)
				}
				pid := 0
				b, _ := os.ReadFile(file) // It may have been killed before it wrote that.
				if _, err := fmt.Sscan(string(b), &pid); err == nil && alive(pid) {
					t.Error("a removed container runs")
				}
				return
			}
			pid := readPID(t, file)
			eventually(t, "it is seen to run", func() bool {
				return n.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
			})
			n.stop(id, 10)
			if alive(pid) {
				t.Error("it is alive")
			}
		})
	}
}
