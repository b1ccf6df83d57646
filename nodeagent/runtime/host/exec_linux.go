package host

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

const (
	// maxExecOutput is what ExecSync keeps of each stream, in bytes; the rest is dropped.
	maxExecOutput = 1 << 20
	// execDrain is how long output is waited for after the process has ended, in case something that it left behind
	// holds the pipe open.
	execDrain = 200 * time.Millisecond
)

// ExecSync runs a command in a running container. A timeout kills its process group and is the error
// DeadlineExceeded.
func (r *Runtime) ExecSync(
	ctx context.Context, req *runtimeapi.ExecSyncRequest,
) (*runtimeapi.ExecSyncResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	if len(req.GetCmd()) == 0 {
		return nil, badRequest("no command")
	}
	if limit := seconds(req.GetTimeout()); limit > 0 { // Else it takes as long as its caller wants.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit+r.bounds.margin)
		defer cancel()
	}
	u, err := callShim(ctx, c.sb.dir)
	if err != nil {
		return nil, unavailable("the shim cannot be reached: %v", err)
	}
	conn := newShimConn(u, r.bounds.send)
	go conn.read(func(shimwire.Container) {})
	defer func() {
		conn.conn.Close()
		<-conn.done
	}()
	stdout, err := newCapture()
	if err != nil {
		return nil, failed("%v", err)
	}
	stderr, err := newCapture()
	if err != nil {
		stdout.finish(0)
		return nil, failed("%v", err)
	}
	call := shimwire.ExecRequest{ContainerID: c.id, Args: req.GetCmd(), Timeout: int64(seconds(req.GetTimeout()))}
	b, err := conn.call(ctx, shimwire.Exec, call.Encode(), stdout.theirs, stderr.theirs)
	out, errs := stdout.finish(execDrain), stderr.finish(execDrain)
	var reply shimwire.ExecReply
	if err == nil {
		err = reply.Decode(b)
	}
	switch {
	case err != nil:
		return nil, callError(err)
	case reply.Error != "":
		return nil, failed("%s", reply.Error)
	case reply.TimedOut:
		return nil, timedOut("command %q timed out after %d s", req.GetCmd(), req.GetTimeout())
	}
	return &runtimeapi.ExecSyncResponse{Stdout: out, Stderr: errs, ExitCode: int32(reply.ExitCode)}, nil
}

// capture is a pipe whose other end a process writes to.
type capture struct {
	theirs int
	ours   *os.File
	kept   []byte
	done   chan struct{}
}

func newCapture() (*capture, error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	_ = unix.SetNonblock(fd[0], true) // Ours only: the process gets an ordinary pipe.
	p := &capture{theirs: fd[1], ours: os.NewFile(uintptr(fd[0]), "exec"), done: make(chan struct{})}
	go p.read()
	return p, nil
}

func (p *capture) read() {
	defer close(p.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.ours.Read(buf)
		p.kept = append(p.kept, buf[:min(n, maxExecOutput-len(p.kept))]...)
		if err != nil {
			return // io.EOF, or the deadline of finish.
		}
	}
}

// finish closes this program's copy of the other end and returns what was written until all are closed.
func (p *capture) finish(patience time.Duration) []byte {
	unix.Close(p.theirs)
	_ = p.ours.SetReadDeadline(time.Now().Add(patience))
	<-p.done
	p.ours.Close()
	return p.kept
}
