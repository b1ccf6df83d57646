package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/stream"
)

// heard is what has been written so far.
type heard struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.Write(b)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

// execOf is a request to run a shell script in a container.
func execOf(id, text string) *runtimeapi.ExecRequest {
	return &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"/bin/sh", "-c", text}, Stdin: true, Stdout: true,
		Stderr: true}
}

// A command reads its input to the end, and its output, errors and exit code arrive whole, whatever has ended first.
//
// spec: CTR-9
func TestExecStream(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for name, sb := range map[string]string{"plain": n.plainSandbox("plain"), "view": n.sandbox("view")} {
		id := n.run(sb, script(name, "exec sleep 1000"))
		for range 5 {
			const most = 3 << 20
			var out, errs heard
			code, err := n.ExecStream(t.Context(), execOf(id, "cat; echo done >&2; exit 7"), stream.Streams{
				In: io.LimitReader(zeros{}, most), Out: &out, Err: &errs})
			if err != nil || code != 7 || len(out.String()) != most || errs.String() != "done\n" {
				t.Fatalf("%s: code %d, %v, %d bytes, %q", name, code, err, len(out.String()), errs.String())
			}
		}
		// Without an input there is none, and what is not asked for goes nowhere.
		req := execOf(id, "cat; echo out; echo err >&2; sleep 1000 & kill -9 $$")
		req.Stdin, req.Stderr = false, false
		var out heard
		code, err := n.ExecStream(t.Context(), req, stream.Streams{Out: &out})
		if err != nil || code != 128+9 || out.String() != "out\n" {
			t.Errorf("%s: code %d, %v, %q", name, code, err, out.String())
		}
		if _, err := n.ExecStream(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"/no/such"},
			Stdout: true}, stream.Streams{Out: &out}); err == nil || !strings.Contains(err.Error(), "/no/such") {
			t.Errorf("%s: a program that does not exist: %v", name, err)
		}
		n.stop(id, 1)
		if _, err := n.ExecStream(t.Context(), execOf(id, "true"), stream.Streams{}); err == nil {
			t.Errorf("%s: ran in a container that has ended", name)
		}
	}
	if _, err := n.ExecStream(t.Context(), execOf("none", "true"), stream.Streams{}); status.Code(err) != codes.NotFound {
		t.Errorf("no container: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// A command on a terminal has it for its own: it controls it, knows its size and what kind it is, and is told of
// another size.
//
// spec: CTR-9
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	id := n.run(n.sandbox("terminal"), script("c", "exec sleep 1000"))
	sizes := make(chan stream.Size, 1)
	sizes <- stream.Size{Width: 101, Height: 31}
	req := execOf(id, `stty -echo; echo $TERM; stty size; echo controls > /dev/tty
while read line; do echo "got $line"; stty size; done; exit 3`)
	req.Tty, req.Stderr = true, false
	in, typing := io.Pipe()
	var out heard
	ended := make(chan struct{})
	var code int32
	var err error
	go func() {
		defer close(ended)
		code, err = n.ExecStream(t.Context(), req, stream.Streams{In: in, Out: &out, Sizes: sizes})
	}()
	hears := func(text string) {
		t.Helper()
		eventually(t, text, func() bool { return strings.Contains(out.String(), text) })
	}
	hears("xterm\r\n31 101\r\ncontrols\r\n")
	_, _ = typing.Write([]byte("one\n"))
	hears("got one\r\n")
	sizes <- stream.Size{Width: 60, Height: 20}
	eventually(t, "the terminal has another size", func() bool {
		_, _ = typing.Write([]byte("two\n"))
		return strings.Contains(out.String(), "got two\r\n20 60\r\n")
	})
	_, _ = typing.Write([]byte{4}) // Control-D at the beginning of a line ends the input.
	<-ended
	typing.Close()
	if err != nil || code != 3 {
		t.Errorf("code %d, %v", code, err)
	}
}

// How long the start of a container may take says nothing of the commands that run in it later.
//
// spec: CTR-9, SAFE-4
func TestExecLongAfterTheStart(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "shims are called the same way")
	n := newNode(t)
	ids := map[string]string{}
	for name, sb := range map[string]string{"plain": n.plainSandbox("plain"), "view": n.sandbox("view")} {
		ids[name] = n.create(sb, script(name, "exec sleep 1000"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, id := range ids {
		if _, err := n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
	}
	<-ctx.Done()
	for name, id := range ids {
		if code, err := n.ExecStream(t.Context(), execOf(id, "exit 3"), stream.Streams{In: zeros{}, Out: io.Discard,
			Err: io.Discard}); err != nil || code != 3 {
			t.Errorf("%s: code %d, %v", name, code, err)
		}
		resp, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/bin/true"},
			Timeout: 60})
		if err != nil || resp.GetExitCode() != 0 {
			t.Errorf("%s: a probe: %v, %v", name, resp, err)
		}
		n.stop(id, 0)
	}
}

// Many commands begin at once, more than a shim has room for callers that wait: none of them is turned away.
//
// spec: CTR-9
func TestManyExecsAtOnce(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "shims are called the same way")
	n := newNode(t)
	id := n.run(n.plainSandbox("many"), script("c", "exec sleep 1000"))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			var out heard
			code, err := n.ExecStream(t.Context(), execOf(id, "echo "+strconv.Itoa(i)+"; exit "+strconv.Itoa(i)),
				stream.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
			if err != nil || code != int32(i) || out.String() != strconv.Itoa(i)+"\n" {
				t.Errorf("%d: code %d, %v, %q", i, code, err, out.String())
			}
		})
	}
	all.Wait()
}

// When the caller goes away, the command dies with all that descends from it, also what has left its session.
//
// spec: CTR-9
func TestExecCallerGone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	id := n.run(n.sandbox("gone"), script("c", "exec sleep 1000"))
	for _, tty := range []bool{false, true} {
		pids := filepath.Join(t.TempDir(), "pid")
		req := execOf(id, "setsid sleep 1000 & echo $! > "+pids+".new; mv "+pids+".new "+pids+"; wait")
		req.Tty, req.Stderr = tty, !tty
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := n.ExecStream(ctx, req, stream.Streams{In: untilDone{ctx}, Out: io.Discard, Err: io.Discard})
			ended <- err
		}()
		pid := readPID(t, pids)
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("tty %t: %v", tty, err)
		}
		eventually(t, "the command's child is dead", func() bool { return !alive(pid) })
	}
	// A caller who does not take the output is as good as gone.
	_, err := n.ExecStream(t.Context(), execOf(id, "exec cat /dev/zero"), stream.Streams{Out: refuses{}})
	if err == nil || !strings.Contains(err.Error(), "no more") {
		t.Errorf("a writer that fails: %v", err)
	}
}

// untilDone has nothing to read, until the context ends.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

type refuses struct{}

func (refuses) Write([]byte) (int, error) { return 0, errors.New("no more") }

// Two are attached to one container: both see its output from then on, what either types reaches it, the log has all,
// and the attachments end with it. With stdinOnce the end of the first input is the end of the container's.
//
// spec: CTR-9, CTR-8
func TestAttachStream(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim has the streams")
	n := newNode(t)
	config := script("c", "while read line; do echo got $line; done; echo over >&2")
	config.Stdin, config.StdinOnce = true, true
	id := n.run(n.sandbox("attach"), config)
	req := &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true}
	in, typing := io.Pipe()
	var out, errs [2]heard
	ended := make(chan error, 2)
	attach := func(i int, req *runtimeapi.AttachRequest, in io.Reader) {
		ended <- n.AttachStream(t.Context(), req, stream.Streams{In: in, Out: &out[i], Err: &errs[i]})
	}
	go attach(0, req, in)
	go attach(1, &runtimeapi.AttachRequest{ContainerId: id, Stdout: true, Stderr: true}, nil)
	// Nobody tells when somebody has attached: say it until both have heard.
	eventually(t, "both have heard", func() bool {
		_, _ = typing.Write([]byte("hello\n"))
		return strings.Contains(out[0].String(), "got hello\n") && strings.Contains(out[1].String(), "got hello\n")
	})
	typing.Close()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for i := range 2 {
		if errs[i].String() != "over\n" {
			t.Errorf("errors of %d: %q", i, errs[i].String())
		}
	}
	eventually(t, "it has ended", func() bool {
		return n.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	if text := n.logText(id); !strings.Contains(text, "stdout F got hello") || !strings.Contains(text, "stderr F over") {
		t.Errorf("the log: %q", text)
	}
	if err := n.AttachStream(t.Context(), req, stream.Streams{}); err == nil {
		t.Error("attached to a container that has ended")
	}
}

// When a pod ends, whoever has attached is told that it is over, and a command how it ended: neither loses the shim,
// which ends just after. A client would otherwise take the end of what it watched for a failure. It is the same for
// commands that are just being started; one that comes later is refused. spec: CTR-9
func TestStreamsEndWithTheirPod(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim has the streams")
	n := newNode(t)
	const rounds, commands = 20, 5
	for i := range rounds {
		sandbox := n.plainSandbox("ends-" + strconv.Itoa(i))
		config := script("c", "echo here; exec sleep 1000")
		config.Stdin = true
		id := n.run(sandbox, config)
		var out heard
		in, typing := io.Pipe()
		attached, ended := make(chan error, 1), make(chan error, commands)
		go func() {
			attached <- n.AttachStream(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true},
				stream.Streams{In: in, Out: &heard{}})
		}()
		for range commands {
			go func() {
				code, err := n.ExecStream(t.Context(), execOf(id, "echo runs; exec sleep 1000"), stream.Streams{Out: &out})
				if err == nil && code != 137 {
					err = errors.New("exit code " + strconv.Itoa(int(code)))
				}
				ended <- err
			}()
		}
		// What is typed is taken once somebody has attached.
		if _, err := typing.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		// The others are just being started.
		eventually(t, "a command runs", func() bool { return strings.Contains(out.String(), "runs\n") })
		if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
			t.Fatal(err)
		}
		if err := <-attached; err != nil && !strings.Contains(err.Error(), "not running") {
			t.Errorf("round %d: attached: %v", i, err)
		}
		for range commands {
			if err := <-ended; err != nil && !strings.Contains(err.Error(), "not running") &&
				!strings.Contains(err.Error(), "is being stopped") {
				t.Errorf("round %d: the command: %v", i, err)
			}
		}
		typing.Close()
	}
}

// Somebody who attaches to a terminal types on it, sets its size, and leaves: the container goes on, and the next one
// finds it.
//
// spec: CTR-9
func TestAttachTerminal(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim has the streams")
	n := newNode(t)
	id := n.run(n.plainSandbox("attach"), onTerminal("c", "stty -echo; while read line; do echo $line; stty size; done"))
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		sizes := make(chan stream.Size, 1)
		sizes <- stream.Size{Width: uint16(70 + i), Height: 20}
		in, typing := io.Pipe()
		var out heard
		ended := make(chan error, 1)
		go func() {
			ended <- n.AttachStream(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Tty: true},
				stream.Streams{In: in, Out: &out, Sizes: sizes})
		}()
		want := "hello\r\n20 " + strconv.Itoa(70+i) + "\r\n"
		eventually(t, want, func() bool {
			_, _ = typing.Write([]byte("hello\n"))
			return strings.Contains(out.String(), want)
		})
		cancel()
		typing.Close()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
	if got := n.status(id).GetState(); got != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v", got)
	}
	n.stop(id, 1)
}

// The shim of an older version would give no input and no terminal: it is not asked.
func TestStreamsOfAnOlderShim(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	sb := n.plainSandbox("older")
	id := n.run(sb, script("c", "exec sleep 1000"))
	n.noteShim(n.sandboxOf(sb), &shimwire.HelloReply{Version: shimwire.Streams - 1})
	_, err := n.ExecStream(t.Context(), execOf(id, "true"), stream.Streams{})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "older version") {
		t.Errorf("exec: %v", err)
	}
	n.stop(id, 0)
}

// A port is reached by what listens on the machine; bytes and the ends of both directions pass.
//
// spec: CTR-9
func TestForward(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the runtime dials")
	onlyHost(t, "the pod has a network of its own")
	n := newNode(t)
	sb := n.plainSandbox("forward")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, _ := io.ReadAll(c)
				_, _ = c.Write(bytes.ToUpper(b))
			}()
		}
	}()
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, _ := strconv.Atoi(text)
	near := &nearEnd{in: strings.NewReader("hello")}
	if err := n.Forward(t.Context(), sb, int32(port), near); err != nil || near.out.String() != "HELLO" || !near.closed {
		t.Errorf("%v, %q, closed %t", err, near.out.String(), near.closed)
	}
	l.Close()
	if err := n.Forward(t.Context(), sb, int32(port), near); status.Code(err) != codes.Unavailable {
		t.Errorf("nobody listens: %v", err)
	}
	if err := n.Forward(t.Context(), sb, 0, near); status.Code(err) != codes.InvalidArgument {
		t.Errorf("port 0: %v", err)
	}
	if err := n.Forward(t.Context(), "none", 80, near); status.Code(err) != codes.NotFound {
		t.Errorf("no sandbox: %v", err)
	}
}

type nearEnd struct {
	in     io.Reader
	out    bytes.Buffer
	closed bool
}

func (e *nearEnd) Read(b []byte) (int, error)  { return e.in.Read(b) }
func (e *nearEnd) Write(b []byte) (int, error) { return e.out.Write(b) }
func (e *nearEnd) CloseWrite() error           { e.closed = true; return nil }

// Streams leave no descriptor, here or in the shim.
func TestStreamsLeakNothing(t *testing.T) {
	sameForUsers(t, "the shim has the streams")
	n := newNode(t)
	sb := n.plainSandbox("leak")
	config := script("c", "exec sleep 1000")
	config.Stdin = true
	id := n.run(sb, config)
	shim := n.shimPID(sb)
	cycle := func() {
		for _, tty := range []bool{false, true} {
			req := execOf(id, "echo")
			req.Tty, req.Stderr = tty, !tty
			with := stream.Streams{In: zeros{}, Out: io.Discard, Err: io.Discard}
			if _, err := n.ExecStream(t.Context(), req, with); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = n.AttachStream(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true}, stream.Streams{
			In: untilDone{ctx}, Out: io.Discard})
	}
	cycle()
	here, there := len(openFiles(t, os.Getpid())), len(openFiles(t, shim))
	for range 10 {
		cycle()
	}
	eventually(t, "descriptors are closed", func() bool {
		return len(openFiles(t, os.Getpid())) <= here && len(openFiles(t, shim)) <= there
	})
}
