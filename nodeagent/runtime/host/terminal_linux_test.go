package host

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// onTerminal is a container with a terminal that runs a script.
func onTerminal(name, text string) *runtimeapi.ContainerConfig {
	config := script(name, text)
	config.Tty, config.Stdin = true, true
	return config
}

// A container with tty has a controlling terminal as its input, output and errors, of its own user; what it writes
// there is logged as stdout, and Exec is not on it. Another container, and the shim, have none.
//
// spec: CTR-7, CTR-8
func TestTerminal(t *testing.T) {
	t.Parallel()
	onlyHost(t, "stty of busybox knows no terminal of size 0")
	n := newNode(t)
	for name, sb := range map[string]string{"plain": n.plainSandbox("plain"), "view": n.sandbox("view")} {
		config := onTerminal(name, `tty; test -t 0 && test -t 1 && test -t 2 && echo all; echo controls > /dev/tty
echo $TERM; stat -c %u $(tty); echo errors >&2; stty size; exec sleep 1000`)
		uid := os.Geteuid()
		if uid == 0 {
			uid = 65534
			config = withSecurity(config, &runtimeapi.LinuxContainerSecurityContext{
				RunAsUser: &runtimeapi.Int64Value{Value: int64(uid)}}, 0)
		}
		id := n.run(sb, config)
		eventually(t, "it has written", func() bool { return strings.Contains(n.logText(id), "0 0\r") })
		lines := strings.Split(strings.TrimSuffix(n.logText(id), "\n"), "\n")
		if !strings.HasPrefix(lines[0], "stdout F /dev/pts/") {
			t.Fatalf("%s: its terminal is %q", name, lines[0])
		}
		want := []string{"all", "controls", "xterm", strconv.Itoa(uid), "errors", "0 0"}
		for i, line := range lines[1:] {
			if line != "stdout F "+want[i]+"\r" {
				t.Errorf("%s: line %d is %q, want %q", name, i, line, want[i])
			}
		}
		exec, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"/bin/sh", "-c", "test -t 1 || echo none; echo x > /dev/tty || echo controls nothing"}})
		if err != nil || string(exec.GetStdout()) != "none\ncontrols nothing\n" {
			t.Errorf("%s: run in it: %v %v", name, exec, err)
		}
		other := n.run(sb, script("other",
			"test -t 0 || test -t 1 || echo none; (echo x > /dev/tty) 2>/dev/null || echo nothing"))
		if got := n.output(other); got != "none\nnothing\n" {
			t.Errorf("%s: another container: %q", name, got)
		}
		n.stop(id, 1)
	}
}

// All that a container has written to its terminal is in its log, also what it wrote last, however much that is.
//
// spec: CTR-8
func TestAllOfATerminal(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the shim has the streams")
	n := newNode(t)
	sb := n.plainSandbox("much")
	const most = 20000
	for i := range uint32(5) {
		config := onTerminal("c", "exec seq 1 "+strconv.Itoa(most))
		config.Metadata.Attempt = i
		config.LogPath = "c/" + strconv.Itoa(int(i)) + ".log"
		got := n.output(n.run(sb, config))
		if lines := strings.Count(got, "\r\n"); lines != most || !strings.HasSuffix(got, "\n"+strconv.Itoa(most)+"\r\n") {
			t.Errorf("%d lines of %d, the last of them %q", lines, most, got[max(0, len(got)-20):])
		}
	}
}

// A program that closes its terminal, and opens it again, is still heard.
func TestTerminalOpenedAgain(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim has the streams")
	n := newNode(t)
	config := onTerminal("c", "t=$(tty); exec < /dev/null > /dev/null 2>&1; sleep 0.1; echo back > $t")
	if got := n.output(n.run(n.plainSandbox("again"), config)); got != "back\r\n" {
		t.Errorf("got %q", got)
	}
}

// What hangs on a terminal ends with its container, also what ignores that the terminal is gone.
//
// spec: TERM-4
func TestStopOnATerminal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pids := t.TempDir() + "/pid"
	id := n.run(n.sandbox("stop"), onTerminal("c",
		"trap '' HUP TERM; (trap '' HUP TERM; sleep 1000) & echo $! > "+pids+"; wait"))
	left := readPID(t, pids)
	n.stop(id, 1)
	if alive(left) || n.status(id).GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("process %d is left, or %v", left, n.status(id))
	}
}

// The shim of an older version would give no terminal, and all of a volume: such containers are refused.
func TestShimOfVersion3(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	sb := n.plainSandbox("older")
	n.noteShim(n.sandboxOf(sb), &shimwire.HelloReply{Version: shimwire.Version4 - 1})
	for _, config := range []*runtimeapi.ContainerConfig{
		onTerminal("terminal", "true"), script("part", "true", part(t.TempDir(), "x", "/monoplane-x")),
	} {
		err := n.start(n.create(sb, config))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "older version") {
			t.Errorf("%s: %v", config.GetMetadata().GetName(), err)
		}
	}
}
