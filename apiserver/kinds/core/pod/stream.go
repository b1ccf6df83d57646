package pod

import (
	"context"
	"errors"
	"io"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds/define"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// conversation is the stream of a method whose messages go both ways.
type conversation[Q interface {
	GetInput() *corev1.StreamInput
}] interface {
	Context() context.Context
	Recv() (Q, error)
	Send(*corev1.StreamOutput) error
	SendHeader(metadata.MD) error
}

// Exec serves Pods.Exec (CTR-9).
func (s *service) Exec(stream grpc.BidiStreamingServer[corev1rpc.ExecPodRequest, corev1.StreamOutput]) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	ask := &nodev1rpc.ExecCall{Options: &corev1.PodExecOptions{
		Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr(), Tty: req.GetTty(),
		Container: req.GetContainer(), Command: req.GetCommand(),
	}}
	o := ask.Options
	if len(o.Command) == 0 {
		return apierrors.New(apierrors.BadRequest, "you must specify at least one command for the container")
	}
	o.Stdout, o.Stderr = outputs(o.Stdin, o.Stdout, o.Stderr, o.Tty)
	node, err := s.runningPod(stream.Context(), req.GetNamespace(), req.GetName(), &ask.Uid, &o.Container)
	if err != nil {
		return err
	}
	s.pods.audit.Stream(stream.Context(), user(stream.Context()), "exec", req.GetNamespace()+"/"+req.GetName(), ask.Uid,
		o.Container, o.Command)
	return converse[*corev1rpc.ExecPodRequest](stream, req, func(ctx context.Context) (define.Conversation, error) {
		return s.streams.Exec(ctx, node, ask)
	})
}

// Attach serves Pods.Attach (CTR-9).
func (s *service) Attach(stream grpc.BidiStreamingServer[corev1rpc.AttachPodRequest, corev1.StreamOutput]) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	ask := &nodev1rpc.AttachCall{Options: &corev1.PodAttachOptions{
		Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr(), Tty: req.GetTty(),
		Container: req.GetContainer(),
	}}
	o := ask.Options
	o.Stdout, o.Stderr = outputs(o.Stdin, o.Stdout, o.Stderr, o.Tty)
	node, err := s.runningPod(stream.Context(), req.GetNamespace(), req.GetName(), &ask.Uid, &o.Container)
	if err != nil {
		return err
	}
	s.pods.audit.Stream(stream.Context(), user(stream.Context()), "attach", req.GetNamespace()+"/"+req.GetName(), ask.Uid,
		o.Container, nil)
	return converse[*corev1rpc.AttachPodRequest](stream, req, func(ctx context.Context) (define.Conversation, error) {
		return s.streams.Attach(ctx, node, ask)
	})
}

// PortForward serves Pods.PortForward (CTR-9).
func (s *service) PortForward(
	stream grpc.BidiStreamingServer[corev1rpc.PortForwardPodRequest, corev1.StreamOutput],
) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	ask := &nodev1rpc.PortForwardCall{}
	var ports []string
	switch list := req.GetPorts(); {
	case len(list) > 1:
		return apierrors.New(apierrors.BadRequest, "one call forwards one port, not %d", len(list))
	case len(list) == 1 && (list[0] < 1 || list[0] > 65535):
		return apierrors.New(apierrors.BadRequest, "port %d is not between 1 and 65535", list[0])
	case len(list) == 1:
		ask.Port, ports = list[0], []string{strconv.Itoa(int(list[0]))}
	}
	node, err := s.runningPod(stream.Context(), req.GetNamespace(), req.GetName(), &ask.Uid, nil)
	if err != nil {
		return err
	}
	if len(ports) > 0 {
		s.pods.audit.Stream(stream.Context(), user(stream.Context()), "portforward", req.GetNamespace()+"/"+req.GetName(),
			ask.Uid, "", ports)
	} else {
		// Over HTTP the request begins with this, and each connection is a call of its own, with a line in the log.
		audit.From(stream.Context()).Act("portforward")
	}
	return converse[*corev1rpc.PortForwardPodRequest](stream, req, func(
		ctx context.Context,
	) (define.Conversation, error) {
		return s.streams.PortForward(ctx, node, ask)
	})
}

func user(ctx context.Context) string {
	if u := authn.UserFrom(ctx); u != nil {
		return u.Name
	}
	return ""
}

// outputs are those that are wanted: both where nothing is asked for, and no errors beside a terminal, which are part
// of its output.
func outputs(stdin, stdout, stderr, tty bool) (out, errs bool) {
	if !stdin && !stdout && !stderr {
		stdout, stderr = true, true
	}
	return stdout, stderr && !tty
}

// runningPod returns the node of a pod that may be running, and fills in its uid, and which container is meant unless
// that is nil.
func (s *service) runningPod(
	ctx context.Context, namespace, name string, uid, which *string,
) (node string, err error) {
	o, err := s.Backend.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
	if err != nil {
		return "", err
	}
	p := o.(*corev1.Pod)
	if which != nil {
		if *which, err = container(p, *which); err != nil {
			return "", err
		}
	}
	if err := s.reachable(p); err != nil {
		return "", err
	}
	*uid = p.GetMetadata().GetUid()
	return p.GetSpec().GetNodeName(), nil
}

// livePod returns a pod that may be running.
func (s *service) livePod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	o, err := s.Backend.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	p := o.(*corev1.Pod)
	return p, s.reachable(p)
}

// reachable refuses a pod of which nothing can run.
func (s *service) reachable(p *corev1.Pod) error {
	name := p.GetMetadata().GetName()
	if phase := p.GetStatus().GetPhase(); phase == "Succeeded" || phase == "Failed" {
		return apierrors.New(apierrors.Conflict, "pod %s is completed; current phase is %s", name, phase)
	}
	if p.GetSpec().GetNodeName() == "" {
		return apierrors.New(apierrors.BadRequest, "pod %s does not have a host assigned", name)
	}
	if s.streams == nil {
		return apierrors.New(apierrors.ServiceUnavailable, "this server has no connection to the agents of nodes")
	}
	return nil
}

// converse passes on what goes in and what comes out until the agent has said how it went. The header is sent when the
// agent has accepted the call.
func converse[Q interface {
	GetInput() *corev1.StreamInput
}](
	stream conversation[Q], first Q, open func(context.Context) (define.Conversation, error),
) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	agent, err := open(ctx)
	if err != nil {
		return err
	}
	defer agent.Close()
	if _, err := agent.Recv(); errors.Is(err, io.EOF) {
		return nil // It was only asked whether it could be.
	} else if err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	go func() {
		// The end of this call ends a pending Recv.
		in, ended := first.GetInput(), false
		for {
			if in != nil && !ended {
				ended = in.GetEnd()
				if agent.Send(in) != nil {
					return
				}
			}
			req, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF) && !ended:
				_ = agent.Send(&corev1.StreamInput{End: true})
				return
			case err != nil:
				return
			}
			in = req.GetInput()
		}
	}()
	for {
		out, err := agent.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}
