package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/calls"
	"monoplane.dev/codec/value"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podlog"
	"monoplane.dev/nodeagent/podstate"
)

// serveStreams listens for what the API server asks of this node and answers each call on a stream of its own.
func (a *Agent) serveStreams(ctx context.Context) error {
	return calls.Serve(ctx, calls.Config[*nodev1rpc.Call]{
		Listen: func(ctx context.Context) (func() (*nodev1rpc.Call, error), error) {
			stream, err := a.cfg.Client.NodeStreams.Listen(ctx, &nodev1rpc.ListenRequest{Node: a.cfg.NodeName})
			if err != nil {
				return nil, err
			}
			return stream.Recv, nil
		},
		Answer: a.cfg.Client.NodeStreams.Answer, Do: a.serve, Spawn: a.spawn, Logger: a.cfg.Logger,
	})
}

func (a *Agent) serve(ctx context.Context, call *nodev1rpc.Call, answer *calls.Answer) error {
	switch ask := call.GetRequest().(type) {
	case *nodev1rpc.Call_Usage:
		return a.reportUsage(ctx, answer.Send)
	case *nodev1rpc.Call_Document:
		return a.serveDocument(ctx, ask.Document, answer.Send)
	case *nodev1rpc.Call_Log:
		err := a.log(ctx, ask.Log, answer.Send)
		if errors.Is(err, io.EOF) {
			return ctx.Err()
		}
		return err
	case *nodev1rpc.Call_Exec:
		return a.exec(ctx, ask.Exec, answer)
	case *nodev1rpc.Call_Attach:
		return a.attach(ctx, ask.Attach, answer)
	case *nodev1rpc.Call_RemoveVolume:
		if a.volumes == nil {
			return apierrors.New(apierrors.BadRequest, "this node has no volumes")
		}
		return a.volumes.RemoveLocal(ctx, ask.RemoveVolume.GetName())
	case *nodev1rpc.Call_PortForward:
		return a.forward(ctx, ask.PortForward, answer)
	}
	return apierrors.New(apierrors.MethodNotAllowed, "this agent does not know what is asked of it")
}

// workerOf returns the worker of a pod, or of the static pod whose mirror it is; nil for none.
func (a *Agent) workerOf(uid string) *worker {
	if w := a.worker(uid); w != nil {
		return w
	}
	return a.static.ofMirror(uid)
}

// log reads a container's log. spec: CTR-8
func (a *Agent) log(ctx context.Context, ask *nodev1rpc.LogCall, send func([]byte) error) error {
	w := a.workerOf(ask.GetUid())
	if w == nil {
		return apierrors.NewNotFound(corev1.PodKind, ask.GetPod())
	}
	o := ask.GetOptions()
	path, attempt, err := a.logPath(w, o.GetContainer(), o.GetPrevious())
	if err != nil {
		return err
	}
	options := podlog.Options{Follow: o.GetFollow(), Timestamps: o.GetTimestamps(), Tail: -1, Limit: -1,
		Since: value.GoTime(o.GetSinceTime())}
	if o.SinceSeconds != nil {
		options.Since = now().Add(-time.Duration(o.GetSinceSeconds()) * time.Second)
	}
	if o.TailLines != nil {
		options.Tail = o.GetTailLines()
	}
	if o.LimitBytes != nil {
		options.Limit = o.GetLimitBytes()
	}
	switch o.GetStream() {
	case "Stdout":
		options.Stream = "stdout"
	case "Stderr":
		options.Stream = "stderr"
	}
	running := func() bool {
		on := false
		w.look(func(m *podstate.StateMachine) {
			in, _, ok := m.Instance(o.GetContainer())
			on = ok && in.Attempt == attempt && in.State == podstate.Running
		})
		return on
	}
	return podlog.Read(ctx, path, options, running, send)
}

// logPath returns the log file of the newest instance of a container, or of the one before it.
func (a *Agent) logPath(w *worker, container string, previous bool) (path string, attempt uint32, err error) {
	var (
		in     podstate.Instance
		before *podstate.Instance
		ok     bool
		waits  string
	)
	w.look(func(m *podstate.StateMachine) {
		in, before, ok = m.Instance(container)
		waits = m.Waiting(container)
	})
	p := w.pod()
	if previous && in.State == podstate.Exited && w.restarting(container) {
		before = &in // while a restart is waited for, the previous instance is the one that ended
	}
	which := fmt.Sprintf("container %q in pod %q", container, p.GetMetadata().GetName())
	switch {
	case previous && before == nil:
		return "", 0, apierrors.New(apierrors.BadRequest, "previous terminated %s not found", which)
	case previous:
		in = *before
	case waits != "":
		return "", 0, apierrors.New(apierrors.BadRequest, "%s is waiting to start: %s", which, waits)
	case !ok:
		return "", 0, apierrors.New(apierrors.BadRequest, "%s has never been started", which)
	}
	if a.cfg.PodLogDir == "" {
		return "", in.Attempt, nil
	}
	dir := criconfig.PodDir(p.GetMetadata().GetNamespace(), p.GetMetadata().GetName(), w.uid)
	return filepath.Join(a.cfg.PodLogDir, dir, criconfig.LogName(container, in.Attempt)), in.Attempt, nil
}

// rotateLogs rotates logs that have grown too large, until ctx ends.
func (a *Agent) rotateLogs(ctx context.Context) error {
	const interval, inFlood = 10 * time.Second, time.Second
	for wait := interval; sleep(ctx, wait); {
		wait = interval
		if a.rotateOnce(ctx) {
			wait = inFlood
		}
	}
	return ctx.Err()
}
