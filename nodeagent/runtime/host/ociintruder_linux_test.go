package host

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Processes of the machine, and files of the server there, are not reached from a container, though the server, the
// shim and the processes that hold namespaces are the same user's as the container's root where that is not the
// machine's. A pod that shares the machine's processes sees them, and can do no more than to signal them.
//
// spec: SEC-1, SAFE-5
func TestRootEscapeProcesses(t *testing.T) {
	t.Parallel()
	needsPlainProgram(t)
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	args := n.victims(sb)
	victims := strings.Count(strings.Join(args, " "), "pid=")
	outside := exec.CommandContext(t.Context(), testBinary(t), args...)
	outside.Env = append(os.Environ(), helperVariable+"=intruder")
	out, err := outside.Output()
	for _, want := range []string{"signals ", "reads environ of ", "reads the file "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("not even on the machine it %s: %v\n%s", want, err, out)
		}
	}
	for name, pids := range map[string]runtimeapi.NamespaceMode{
		"own": runtimeapi.NamespaceMode_CONTAINER, "machine": runtimeapi.NamespaceMode_NODE,
	} {
		t.Run(name, func(t *testing.T) {
			config := victim(name, append([]string{testBinary(t)}, args...)...)
			config.Envs = []*runtimeapi.KeyValue{{Key: helperVariable, Value: []byte("intruder")}}
			config.Mounts = []*runtimeapi.Mount{{HostPath: testBinary(t), ContainerPath: testBinary(t)}}
			config.Linux.SecurityContext.NamespaceOptions.Pid = pids
			id := n.run(sb, config)
			n.wait(id)
			signalled := 0
			for line := range strings.Lines(strings.ReplaceAll(n.logText(id), "stdout F ", "")) {
				switch {
				case line == "end\n":
				case strings.HasPrefix(line, "signals ") && pids == runtimeapi.NamespaceMode_NODE:
					signalled++
				default:
					t.Errorf("it %s", line)
				}
			}
			if pids == runtimeapi.NamespaceMode_NODE && signalled != victims {
				t.Errorf("it sees %d of %d processes", signalled, victims)
			}
			if !strings.HasSuffix(n.logText(id), " end\n") {
				t.Errorf("it has not come to its end: %s", n.logText(id))
			}
		})
	}
}

// victims are the arguments of an intruder: the server, which is this process, and the shim of a sandbox; without root
// a process that holds a user namespace and a network, too, as the node's helper does then; a file of the server's
// directory, and one of the images.
func (n *node) victims(sandbox string) []string {
	t := n.t
	t.Helper()
	pids := []int{os.Getpid(), n.shimPID(sandbox)}
	if os.Geteuid() != 0 {
		holder := exec.CommandContext(t.Context(), "sleep", "1000")
		holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}, Pdeathsig: syscall.SIGKILL}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = holder.Process.Kill()
			_ = holder.Wait()
		})
		pids = append(pids, holder.Process.Pid)
	}
	var args []string
	for _, pid := range pids {
		args = append(args, fmt.Sprint("pid=", pid))
	}
	secret := filepath.Join(n.dir, "pki")
	if err := os.WriteFile(secret, []byte("the server's"), 0o600); err != nil {
		t.Fatal(err)
	}
	images, err := filepath.Glob(filepath.Join(n.images, "blobs", "*"))
	if err != nil || len(images) == 0 {
		t.Fatal(images, err)
	}
	for _, file := range []string{secret, images[0]} {
		args = append(args, "file="+file)
		handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, file, 0)
		if err != nil {
			t.Logf("%s has no handle: %v", file, err)
			continue
		}
		args = append(args, fmt.Sprintf("handle=%d:%x", handle.Type(), handle.Bytes()))
	}
	return args
}

// intruderHelper tries to get at the processes and files that its arguments name, and says what it has reached.
func intruderHelper() int {
	runtime.LockOSThread() // The tracer of a process is a thread.
	var pids []int
	for _, arg := range os.Args[1:] {
		switch what, which, _ := strings.Cut(arg, "="); what {
		case "pid":
			pid, _ := strconv.Atoi(which)
			pids = append(pids, pid)
			intrude(pid)
		case "file":
			ways := []string{which, "/proc/self/root" + which, "/proc/1/root" + which,
				"/proc/self/cwd/" + strings.Repeat("../", 20) + which}
			for _, pid := range pids {
				ways = append(ways, fmt.Sprintf("/proc/%d/root%s", pid, which))
			}
			for _, way := range ways {
				if _, err := os.ReadFile(way); err == nil {
					fmt.Println("reads the file", way)
				}
			}
		case "handle":
			openHandle(which)
		}
	}
	fmt.Println("end")
	return 0
}

// intrude tries all that one process can do to another one.
func intrude(pid int) {
	if unix.Kill(pid, 0) == nil {
		fmt.Println("signals", pid)
	}
	for _, name := range []string{"environ", "mem", "maps"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			continue
		}
		if _, err = f.Read(make([]byte, 1)); err == nil || name == "mem" { // Its first page is nobody's.
			fmt.Println("reads", name, "of", pid)
		}
		f.Close()
	}
	for _, name := range []string{"exe", "cwd", "root", "fd/0"} {
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name)); err == nil {
			fmt.Println("follows", name, "of", pid)
		}
	}
	if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
		if fd, err := unix.PidfdGetfd(pidfd, 0, 0); err == nil {
			fmt.Println("takes a descriptor of", pid)
			_ = unix.Close(fd)
		}
		_ = unix.Close(pidfd)
	}
	if pid != os.Getppid() && unix.PtraceAttach(pid) == nil { // Who has started it waits for it.
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		_ = unix.PtraceDetach(pid)
		fmt.Println("traces", pid)
	}
}

// openHandle opens a file by what the kernel calls it on its disk.
func openHandle(which string) {
	form, text, _ := strings.Cut(which, ":")
	kind, _ := strconv.ParseInt(form, 10, 32)
	b, _ := hex.DecodeString(text)
	for _, on := range []string{"/", "/etc/hosts", "/etc/hostname", "/proc/self/exe", "/dev/shm"} {
		disk, err := os.Open(on)
		if err != nil {
			continue
		}
		fd, err := unix.OpenByHandleAt(int(disk.Fd()), unix.NewFileHandle(int32(kind), b), unix.O_RDONLY)
		if err == nil {
			fmt.Println("opens a file by its handle through", on)
			_ = unix.Close(fd)
		}
		disk.Close()
	}
}
