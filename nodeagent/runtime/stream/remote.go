package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Remote is a runtime that is reached through CRI: it answers with the address of a server on this machine, to which
// Remote speaks SPDY, as kubelets do.
type Remote struct {
	Runtime runtimeapi.RuntimeServiceClient
}

var _ Runtime = Remote{}

const (
	commandProtocol = "v4.channel.k8s.io"
	forwardProtocol = "portforward.k8s.io"
	// maxStatus bounds what the server says of how a command went.
	maxStatus = 64 << 10
)

// ExecStream implements Runtime.
func (r Remote) ExecStream(ctx context.Context, req *runtimeapi.ExecRequest, with Streams) (int32, error) {
	answer, err := r.Runtime.Exec(ctx, req)
	if err != nil {
		return 0, err
	}
	return command(ctx, answer.GetUrl(), with.only(req), req.GetTty())
}

// AttachStream implements Runtime.
func (r Remote) AttachStream(ctx context.Context, req *runtimeapi.AttachRequest, with Streams) error {
	answer, err := r.Runtime.Attach(ctx, req)
	if err != nil {
		return err
	}
	_, err = command(ctx, answer.GetUrl(), with.only(req), req.GetTty())
	return err
}

// wanted is what a request says of the streams.
type wanted interface {
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
}

// only leaves out the streams that are not wanted.
func (s Streams) only(req wanted) Streams {
	if !req.GetStdin() {
		s.In = nil
	}
	if !req.GetStdout() {
		s.Out = nil
	}
	if !req.GetStderr() {
		s.Err = nil
	}
	return s
}

// Forward implements Runtime.
func (r Remote) Forward(ctx context.Context, sandbox string, port int32, near Conn) error {
	answer, err := r.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: []int32{port}})
	if err != nil {
		return err
	}
	conn, hangUp, err := dial(ctx, answer.GetUrl(), forwardProtocol)
	if err != nil {
		return err
	}
	defer hangUp()
	header := http.Header{}
	header.Set("port", strconv.Itoa(int(port)))
	header.Set("requestID", "0")
	open := func(kind string) (httpstream.Stream, error) {
		header.Set("streamType", kind)
		return conn.CreateStream(header)
	}
	errs, err := open("error")
	if err != nil {
		return unavailable(err)
	}
	_ = errs.Close() // Nothing is written to it.
	far, err := open("data")
	if err != nil {
		return unavailable(err)
	}
	var said sync.WaitGroup
	said.Go(func() {
		_, _ = io.Copy(struct{ io.Writer }{far}, near)
		_ = far.Close()
	})
	_, err = io.Copy(near, struct{ io.Reader }{far})
	if err != nil {
		return fmt.Errorf("forwarding port %d: %w", port, err)
	}
	problem, err := io.ReadAll(io.LimitReader(errs, maxStatus))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(problem) > 0 {
		return status.Error(codes.Unavailable, string(problem))
	}
	if err == nil {
		err = near.CloseWrite()
	}
	if err == nil {
		said.Wait()
	}
	return err
}

// command talks with a process, and returns its exit code.
func command(ctx context.Context, address string, with Streams, tty bool) (int32, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, hangUp, err := dial(ctx, address, commandProtocol)
	if err != nil {
		return 0, err
	}
	defer hangUp()
	open := func(kind string) (httpstream.Stream, error) {
		s, err := conn.CreateStream(http.Header{"Streamtype": []string{kind}})
		if err != nil {
			return nil, unavailable(err)
		}
		return s, nil
	}
	result, err := open("error")
	if err != nil {
		return 0, err
	}
	_ = result.Close()
	if with.In != nil {
		in, err := open("stdin")
		if err != nil {
			return 0, err
		}
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{in}, with.In)
			_ = in.Close()
		}()
	}
	var copies sync.WaitGroup
	for _, out := range []struct {
		kind string
		to   io.Writer
	}{{"stdout", with.Out}, {"stderr", with.Err}} {
		if out.to == nil || tty && out.kind == "stderr" {
			continue
		}
		from, err := open(out.kind)
		if err != nil {
			return 0, err
		}
		_ = from.Close()
		copies.Go(func() {
			if _, err := io.Copy(out.to, struct{ io.Reader }{from}); err != nil {
				cancel() // Nobody takes the output.
			}
		})
	}
	if tty && with.Sizes != nil {
		resize, err := open("resize")
		if err != nil {
			return 0, err
		}
		go sendSizes(ctx, resize, with.Sizes)
	}
	text, err := io.ReadAll(io.LimitReader(result, maxStatus))
	copies.Wait()
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil:
		return 0, unavailable(err)
	}
	return readStatus(text)
}

// sendSizes tells the server the sizes of the terminal.
func sendSizes(ctx context.Context, to httpstream.Stream, sizes <-chan Size) {
	encoder := json.NewEncoder(to)
	for {
		select {
		case size := <-sizes:
			if encoder.Encode(size) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// readStatus reads what the server says at the end: a Status.
func readStatus(text []byte) (int32, error) {
	if len(text) == 0 {
		return 0, errors.New("the runtime's server ended the connection without saying how it went")
	}
	var s struct {
		Status, Reason, Message string
		Details                 struct {
			Causes []struct{ Reason, Message string }
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return 0, fmt.Errorf("the runtime's server has answered nonsense: %w", err)
	}
	if s.Status == "Success" {
		return 0, nil
	}
	if s.Reason == "NonZeroExitCode" {
		for _, c := range s.Details.Causes {
			if code, err := strconv.ParseInt(c.Message, 10, 32); c.Reason == "ExitCode" && err == nil {
				return int32(code), nil
			}
		}
	}
	return 0, errors.New(s.Message)
}

// dial connects to the server at an address. HangUp, which must be called, ends the connection, as the context does.
func dial(ctx context.Context, address, protocol string) (conn httpstream.Connection, hangUp func(), err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, fmt.Errorf("the runtime has answered with a bad address: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	tripper, err := spdy.NewRoundTripperWithProxy(nil, func(*http.Request) (*url.URL, error) { return nil, nil })
	if err != nil {
		return nil, nil, err
	}
	resp, err := tripper.RoundTrip(req)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	defer resp.Body.Close()
	if conn, err = tripper.NewConnection(resp); err != nil {
		return nil, nil, unavailable(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() { stop(); _ = conn.Close() }, nil
}

func unavailable(err error) error {
	var network net.Error
	if errors.As(err, &network) {
		return status.Errorf(codes.Unavailable, "the runtime's server cannot be reached: %v", err)
	}
	return err
}
