package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Result is what an attempt says about a container.
type Result int

const (
	// Unknown means that the attempt could not be made; it says nothing about the container, and nothing is done.
	Unknown Result = iota
	// Success means that the container is well. A message with it is a warning for the user (event ProbeWarning).
	Success
	// Failure means that the container is not well, or did not answer in time.
	Failure
)

// String returns the name that Kubernetes gives the result.
func (r Result) String() string {
	switch r {
	case Success:
		return "success"
	case Failure:
		return "failure"
	default:
		return "unknown"
	}
}

// Bounds of what is taken up of an answer.
const (
	maxBody   = 10 << 10
	maxHeader = 1 << 20
)

// version is how probes and hooks name themselves to servers: the version of Kubernetes whose behaviour they have.
const version = "1.36"

// Target is the container that a probe or a hook is for.
type Target struct {
	// PodIP is where the pod listens, unless the probe names a host.
	PodIP string
	// Container declares the ports that a probe can name, and the variables that its command can use.
	Container *corev1.Container
	// Exec runs a command in the container and returns what it has written and its exit code. It ends the command when
	// timeout has passed, and then fails with DeadlineExceeded (of package context, or a gRPC status); 0 is no time-out.
	Exec func(ctx context.Context, command []string, timeout time.Duration) (output []byte, code int32, err error)
	// Dial connects to the pod, or to the host that the probe names, as net.Dialer's DialContext does, which it is if
	// nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (t Target) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if t.Dial != nil {
		return t.Dial(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// Run makes one attempt. The message says why it did not succeed, or of what to warn although it did.
func Run(ctx context.Context, p *corev1.Probe, t Target) (Result, string) {
	timeout := time.Duration(max(1, p.GetTimeoutSeconds())) * time.Second
	result, message := attempt(ctx, p.GetHandler(), t, timeout)
	if result != Success && ctx.Err() != nil {
		return Unknown, ctx.Err().Error()
	}
	return result, strings.ToValidUTF8(message, "\uFFFD")
}

func attempt(ctx context.Context, h *corev1.ProbeHandler, t Target, timeout time.Duration) (Result, string) {
	switch {
	case h.GetExec() != nil:
		return runExec(ctx, h.GetExec(), t, timeout)
	case h.GetHttpGet() != nil:
		return runHTTP(ctx, h.GetHttpGet(), t, timeout)
	case h.GetTcpSocket() != nil:
		return runTCP(ctx, h.GetTcpSocket(), t, timeout)
	case h.GetGrpc() != nil:
		return runGRPC(ctx, h.GetGrpc(), t, timeout)
	default:
		return Unknown, fmt.Sprintf("the probe of container %q has no handler: expected exec, httpGet, tcpSocket or grpc",
			t.Container.GetName())
	}
}

// address returns where to connect to: a port, by number or by one of the names that the container gives its ports, of
// a host, which is the pod unless another is named.
func (t Target) address(host string, port *metav1.IntOrString) (string, error) {
	number, err := t.port(port)
	if err != nil {
		return "", err
	}
	return t.join(host, number)
}

func (t Target) join(host string, port int) (string, error) {
	if host == "" {
		host = t.PodIP
	}
	if host == "" { // which would mean this machine
		return "", fmt.Errorf("the pod has no address to connect to")
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func (t Target) port(port *metav1.IntOrString) (int, error) {
	number := int(port.GetIntVal())
	if port.GetType() == 1 {
		var err error
		if number, err = t.named(port.GetStrVal()); err != nil {
			return 0, err
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", number)
	}
	return number, nil
}

func (t Target) named(name string) (int, error) {
	for _, p := range t.Container.GetPorts() {
		if p.GetName() == name {
			return int(p.GetContainerPort()), nil
		}
	}
	if number, err := strconv.Atoi(name); err == nil {
		return number, nil
	}
	return 0, fmt.Errorf("container %q has no port named %q", t.Container.GetName(), name)
}
