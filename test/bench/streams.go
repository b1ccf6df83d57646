package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	kcorev1 "k8s.io/api/core/v1"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// benchStreams measures exec and port-forward into a process of the runtime "host": over gRPC, and as kubectl does it.
// Clients, server, agent and the port share this process; the shims of pods are processes of their own.
func benchStreams(ctx context.Context, e *env) (err error) {
	c, err := startClusterOn(ctx, e, monoplane.HostRuntime(), 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	defer func() { err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c.Client())) }()
	watch, err := newRunWatch(ctx, c.Client())
	if err != nil {
		return err
	}
	if err := createReal(ctx, c.Client(), realPod(streamed)); err != nil {
		return err
	}
	if err := watch.until(1); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	s := &streams{cluster: c, config: config}
	if err := s.execs(ctx, e); err != nil {
		return err
	}
	return s.forwards(ctx, e)
}

// streamed is the pod that the group streams is about.
const streamed = "streamed"

// streams is a cluster with a running pod, and how kubectl reaches it.
type streams struct {
	*cluster
	config *rest.Config
	port   int // Answers transfers.
}

// command is what is run: it says something, and ends.
var command = []string{"/bin/echo", "x"}

// execs prints how long a command takes from the request to its first byte, beside the same program without a pod.
func (s *streams) execs(ctx context.Context, e *env) error {
	for _, way := range []struct {
		name   string
		run    func(context.Context) (time.Duration, error)
		target float64 // Milliseconds beyond the limit.
	}{
		{"exec to its first byte, gRPC over TLS, p50", s.execGRPC, 15},
		{"exec to its first byte, WebSocket, p50", s.execWebSocket, 20},
	} {
		p, err := paired(e.size(200), func(int) (float64, error) {
			took, err := way.run(ctx)
			return took.Seconds() * 1e3, err
		}, func(int) (float64, error) {
			took, err := forkExec(ctx)
			return took.Seconds() * 1e3, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		e.print(row{
			name: way.name, measured: fmt.Sprintf("%.1f ms", p.got), limit: fmt.Sprintf("fork+exec %.1f ms", p.limit),
			ratio: p.ratio, target: fmt.Sprintf("<= +%.0f ms", way.target), met: p.got-p.limit <= way.target,
		})
	}
	return nil
}

// firstByte says when something was first written to it, and drops it.
type firstByte struct{ at time.Time }

func (f *firstByte) Write(b []byte) (int, error) {
	if f.at.IsZero() && len(b) > 0 {
		f.at = time.Now()
	}
	return len(b), nil
}

// after returns how long the first byte took.
func (f *firstByte) after(begin time.Time) (time.Duration, error) {
	if f.at.IsZero() {
		return 0, errors.New("the command has said nothing")
	}
	return f.at.Sub(begin), nil
}

// forkExec runs the command without a pod.
func forkExec(ctx context.Context) (time.Duration, error) {
	var out firstByte
	begin := time.Now()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return 0, err
	}
	return out.after(begin)
}

// execGRPC runs the command over the connection that there is.
func (s *streams) execGRPC(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first firstByte
	begin := time.Now()
	stream, err := s.grpc.Pods.Exec(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&corev1rpc.ExecPodRequest{
		Namespace: "default", Name: streamed, Command: command, Stdout: true,
	}); err != nil {
		return 0, err
	}
	for {
		out, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		_, _ = first.Write(out.GetData())
		if st := out.GetStatus(); st != nil {
			if st.GetStatus() != "Success" {
				return 0, errors.New(st.GetMessage())
			}
			return first.after(begin)
		}
	}
}

// execWebSocket runs the command as kubectl does, over a connection of its own.
func (s *streams) execWebSocket(ctx context.Context) (time.Duration, error) {
	var first firstByte
	begin := time.Now()
	executor, err := remotecommand.NewWebSocketExecutor(s.config, http.MethodGet, s.url+
		"/api/v1/namespaces/default/pods/"+streamed+"/exec?"+
		parameters(&kcorev1.PodExecOptions{Command: command, Stdout: true}))
	if err != nil {
		return 0, err
	}
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &first}); err != nil {
		return 0, err
	}
	return first.after(begin)
}

// parameters are options as they stand in a query.
func parameters(o *kcorev1.PodExecOptions) string {
	v, err := scheme.ParameterCodec.EncodeParameters(o, kcorev1.SchemeGroupVersion)
	if err != nil {
		panic(err) // A type that client-go knows.
	}
	return v.Encode()
}

// forwards prints how many bytes a second come from a port, and go to it. The limit is a bare TLS connection on the
// loopback, since every way to the server is TLS. A forwarded connection has one more, to the port, and what lies
// between the two.
func (s *streams) forwards(ctx context.Context, e *env) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer servePort(l)()
	s.port = l.Addr().(*net.TCPAddr).Port
	limit, err := newBareCopy(e)
	if err != nil {
		return err
	}
	defer limit.end()
	for _, way := range []struct {
		name  string
		dial  func(context.Context) (io.ReadWriteCloser, error)
		share float64
	}{
		{"gRPC over TLS", s.forwardGRPC, 0.2},
		{"SPDY in a WebSocket", s.forwardTunnel, 0.2},
	} {
		for _, direction := range []string{"from", "to"} {
			copied := func(dial func(context.Context) (io.ReadWriteCloser, error)) func(int) (float64, error) {
				return func(int) (float64, error) {
					ctx, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					conn, err := dial(ctx)
					if err != nil {
						return 0, err
					}
					defer conn.Close()
					return transfer(conn, direction, int64(e.size(64))<<20)
				}
			}
			p, err := paired(9, copied(way.dial), copied(limit.dial))
			if err != nil {
				return fmt.Errorf("%s a port, %s: %w", direction, way.name, err)
			}
			r := row{
				name: fmt.Sprintf("port-forward, %s the port, %s", direction, way.name), measured: megabytes(p.got),
				limit: "bare TLS " + megabytes(p.limit), ratio: p.ratio, cpu: p.cpu,
				target: fmt.Sprintf(">= %.2f", way.share), met: p.ratio >= way.share,
			}
			e.print(r)
		}
	}
	return nil
}

// forwardGRPC connects over the connection that there is.
func (s *streams) forwardGRPC(ctx context.Context) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.grpc.Pods.PortForward(ctx)
	if err == nil {
		err = stream.Send(&corev1rpc.PortForwardPodRequest{
			Namespace: "default", Name: streamed, Ports: []int32{int32(s.port)},
		})
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &overGRPC{stream: stream, end: cancel}, nil
}

// overGRPC is a connection over a stream of gRPC.
type overGRPC struct {
	stream corev1rpc.Pods_PortForwardClient
	end    context.CancelFunc
	rest   []byte
}

func (o *overGRPC) Read(b []byte) (int, error) {
	for len(o.rest) == 0 {
		out, err := o.stream.Recv()
		if err != nil {
			return 0, err
		}
		if st := out.GetStatus(); st != nil {
			return 0, fmt.Errorf("the port has ended: %s", st.GetMessage())
		}
		o.rest = out.GetData()
	}
	n := copy(b, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

func (o *overGRPC) Write(b []byte) (int, error) {
	return len(b), o.stream.Send(&corev1rpc.PortForwardPodRequest{Input: &corev1.StreamInput{Data: b}})
}

func (o *overGRPC) Close() error {
	o.end()
	return nil
}

// forwardTunnel connects as kubectl does, without the listener that kubectl has on its machine.
func (s *streams) forwardTunnel(context.Context) (io.ReadWriteCloser, error) {
	u, err := url.Parse(s.podsURL() + "/" + streamed + "/portforward")
	if err != nil {
		return nil, err
	}
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, s.config)
	if err != nil {
		return nil, err
	}
	conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	header.Set(kcorev1.PortHeader, strconv.Itoa(s.port))
	header.Set(kcorev1.PortForwardRequestIDHeader, "0")
	var data httpstream.Stream
	for _, kind := range []string{kcorev1.StreamTypeError, kcorev1.StreamTypeData} {
		header.Set(kcorev1.StreamType, kind)
		if data, err = conn.CreateStream(header); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return tunneled{data, conn}, nil
}

// tunneled is a stream of a connection of its own.
type tunneled struct {
	io.ReadWriter
	io.Closer
}
