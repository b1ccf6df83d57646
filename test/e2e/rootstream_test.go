//go:build rootonly

package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// streamed are pods of an image: one whose first process answers each line, and says goodbye at the end of its input;
// one that serves HTTP on its loopback alone; one that goes on printing.
const streamed = `
apiVersion: v1
kind: Pod
metadata: {name: streams}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/box:1
    stdin: true
    command: [sh, -c, 'while read line; do echo "got $line"; done; echo goodbye; exec sleep 1000']
---
apiVersion: v1
kind: Pod
metadata: {name: serves}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/box:1
    command: [sh, -c, 'echo served >/tmp/x; exec httpd -f -p 127.0.0.1:8080 -h /tmp']
---
apiVersion: v1
kind: Pod
metadata: {name: talks}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: 'localhost/box:1', tty: true, stdin: true, command: [sh]}
  - name: counts
    image: localhost/box:1
    command: [sh, -c, 'n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done']
`

// streamsOfImages shows all that talks with what runs in pods of images, as kubectl does it, over both of its
// protocols. The pods are those of streamed. Ask says something to an address of kubectl's machine and returns the
// answer.
//
// spec: CTR-8, CTR-9, INIT-6
func streamsOfImages(
	t *testing.T, k *kubectl, pods string, ask func(t *testing.T, address, request string) string,
) {
	if out, code := k.run(t, pods, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	k.ok(t, "wait --for=condition=Ready pod/streams pod/serves pod/talks --timeout=2m")
	for _, websockets := range []string{"true", "false"} {
		k.env = append(k.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets,
			"KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
		k.tour(t, []step{
			{line: "exec streams -- sh -c 'echo out; echo err >&2; exit 7'", code: 7, want: []string{`^out$`, `^err$`}},
			{line: "exec -i streams -- wc -c", stdin: strings.Repeat("x", 1<<20), want: []string{`^1048576$`}},
			{line: "exec -i streams -- sh -c 'cat; echo end'", stdin: "half", want: []string{`^halfend$`}},
			{line: "exec streams -- /no/such", code: 1, want: []string{`/no/such`}},
			{line: "exec streams -- sh -c 'kill -9 $$'", code: 137},
		})
		attachTo(t, k)
		forwardTo(t, k, ask)
		terminalIn(t, k, []string{"exec", "-it", "streams", "--", "sh"})
		terminalIn(t, k, []string{"attach", "-it", "talks", "-c", "main"})
	}
	copyThere(t, k)
	follow, _ := k.background(t, "logs -f talks -c counts")
	follow.waitFor(t, `(?s)line 1\n.*line 20\n`)

	// A container of its own image for debugging, in the processes of the one that it is for.
	k.tour(t, []step{
		{line: "debug streams --profile=general --image=localhost/box:1 --target=main -c dbg -- sh -c " +
			"'echo debugging; ls /proc/1/root/there; exec sleep 1000'"},
	})
	k.until(t, "logs streams -c dbg", `debugging\n/proc/1/root/there\n`)
	k.tour(t, []step{
		{line: "exec streams -c dbg -- sh -c 'exit 9'", code: 9},
		{line: "get pod streams -o 'jsonpath={.status.ephemeralContainerStatuses[0].state.running}'",
			want: []string{`startedAt`}},
	})
	k.ok(t, "delete pod streams serves talks --wait --timeout=2m")
}

// attachTo talks with the first process of the pod streams.
func attachTo(t *testing.T, k *kubectl) {
	t.Helper()
	cmd := k.command(t, []string{"attach", "-i", "streams"})
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &capture{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	say := everySecond(in, "me\n") // Again: what is said before kubectl has attached may get lost.
	eventually(t, "the first process has heard and answered", func() (bool, string) {
		say()
		return strings.Contains(out.String(), "got me\n"), out.String()
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // Killed.
}

// everySecond returns what says something, but not again within a second: a busy machine would be left with thousands
// of lines that a shell has yet to read.
func everySecond(to io.Writer, text string) (say func()) {
	var last time.Time
	return func() {
		if time.Since(last) > time.Second {
			last = time.Now()
			_, _ = io.WriteString(to, text) // Who does not hear it is told again.
		}
	}
}

// forwardTo reaches a port that is on a pod's loopback alone.
func forwardTo(t *testing.T, k *kubectl, ask func(t *testing.T, address, request string) string) {
	t.Helper()
	path := "/api/v1/namespaces/" + k.namespace + "/pods/serves:8080/proxy/x"
	k.until(t, "get --raw "+path, `\Aserved\n\z`) // The forwarding kubectl ends when nobody listens.
	forward := k.command(t, []string{"port-forward", "pod/serves", ":8080"})
	said := &capture{}
	forward.Stdout, forward.Stderr = said, said
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	said.waitFor(t, `127.0.0.1:\d+ -> 8080`)
	near := regexp.MustCompile(`127.0.0.1:\d+`).FindString(said.String())
	if text := ask(t, near, "GET /x HTTP/1.0\r\n\r\n"); !strings.HasSuffix(text, "\r\n\r\nserved\n") {
		t.Errorf("the port has said %q; kubectl %s", text, said)
	}
	_ = forward.Process.Kill()
	_ = forward.Wait() // Killed.
}

// copyThere copies a file to the pod streams and back.
func copyThere(t *testing.T, k *kubectl) {
	t.Helper()
	dir := t.TempDir()
	from, back := filepath.Join(dir, "from"), filepath.Join(dir, "back")
	text := bytes.Repeat([]byte("0123456789"), 100_000)
	if err := os.WriteFile(from, text, 0o600); err != nil {
		t.Fatal(err)
	}
	k.ok(t, "cp "+from+" streams:/there")
	k.ok(t, "cp streams:/there "+back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes have come back, %v", len(got), err)
	}
}

// terminalIn runs a command of kubectl, whose far end is a shell, on a terminal, and changes its size.
func terminalIn(t *testing.T, k *kubectl, args []string) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "terminal")
	defer master.Close()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	resize := func(columns, rows uint16) {
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
			t.Fatal(err)
		}
	}
	resize(91, 17)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := k.command(t, args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close() // The command has its own.
	out := &capture{}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(out, master) // Fails when the command has ended.
	}()
	sized := func(want string) {
		t.Helper()
		// Again, since what is said before kubectl has attached may get lost, and the size comes by itself.
		say := everySecond(master, "busybox stty size\n")
		eventually(t, strings.Join(args, " ")+" has a terminal of "+want, func() (bool, string) {
			say()
			return strings.Contains(out.String(), "\n"+want+"\r\n"), fmt.Sprintf("%q", out.String())
		})
	}
	sized("17 91")
	resize(132, 43)
	// It is not kubectl's controlling terminal, which would tell it.
	if err := cmd.Process.Signal(syscall.SIGWINCH); err != nil {
		t.Error(err)
	}
	sized("43 132")
	if args[0] == "exec" {
		_, _ = io.WriteString(master, "exit 5\n")
		_ = cmd.Wait() // Its code is what counts.
		if code := cmd.ProcessState.ExitCode(); code != 5 {
			t.Errorf("kubectl %s ends with %d: %s", strings.Join(args, " "), code, out)
		}
	} else {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // Killed.
	}
	<-copied
}

// askDirectly says something to an address of this machine.
func askDirectly(t *testing.T, address, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// Streams into pods of a real containerd, through the server that it names.
func (c onContainerd) streams(t *testing.T) {
	streamsOfImages(t, c.kubectl(t, "default"), streamed, askDirectly)
}

// TestRootImageStreams shows the same on pods of images without a container engine, in networks of their own, and two
// of the three with users of their own.
//
// spec: CTR-8, CTR-9, INIT-6, USER-1
func TestRootImageStreams(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	u := m.imageCluster(t)
	u.begin(t)
	k := u.kubectl(t)
	pods := streamed
	for _, name := range []string{"streams", "serves"} {
		named := "metadata: {name: " + name + "}\nspec:\n"
		if !strings.Contains(pods, named) {
			t.Fatalf("there is no pod %s", name)
		}
		pods = strings.Replace(pods, named, named+"  hostUsers: false\n", 1)
	}
	streamsOfImages(t, k, pods, func(t *testing.T, address, request string) string {
		t.Helper()
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("nsenter", "--net=/run/netns/"+m.name, "busybox", "nc", "-w", "10", host, port)
		cmd.Stdin = strings.NewReader(request)
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("nc: %v", err)
		}
		return string(out)
	})
}
