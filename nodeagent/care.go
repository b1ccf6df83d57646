package nodeagent

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/hook"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/probe"
)

// runProbe makes one attempt of a probe beside what else the worker does. The caller holds the lock.
func (w *worker) runProbe(action podstate.Probe) {
	job := w.job()
	w.agent.spawn(func(ctx context.Context) {
		in, result := job.probe(ctx, action)
		if ctx.Err() != nil {
			return // it was the agent that ended
		}
		if early := action.Early && result != probe.Success; !early && !w.agent.cfg.Simulated {
			w.count(podstate.ContainerAt(job.pod, action.Index).GetName(), action.Kind, result)
		}
		w.post(in)
	})
}

// What early attempts cost: one that starts a process as much as several that only connect. Where there are too many
// they wait in line for each other, for a while.
const (
	earlyNetwork   = 1
	earlyExec      = 5
	earlyPerSecond = 100
	earlyWait      = time.Second
)

// waitEarly waits until there is room for an early attempt, and reports whether there is.
func (a *Agent) waitEarly(ctx context.Context, h *corev1.ProbeHandler) bool {
	cost := earlyNetwork
	if h.GetExec() != nil {
		cost = earlyExec
	}
	ctx, cancel := context.WithTimeout(ctx, earlyWait)
	defer cancel()
	return a.early.WaitN(ctx, cost) == nil
}

// probe makes one attempt of a probe, if there is room for it. spec: PROBE-1
func (j job) probe(ctx context.Context, action podstate.Probe) (podstate.Input, probe.Result) {
	spec := podstate.ContainerAt(j.pod, action.Index)
	p := action.Kind.Of(spec)
	h := p.GetHandler()
	if action.Early && !j.agent.waitEarly(ctx, h) {
		return podstate.Probed{Probe: action}, probe.Unknown
	}
	if command := simulatedCommand(j.agent.cfg.Simulated, h.GetHttpGet(), h.GetTcpSocket(), h.GetGrpc()); command != nil {
		p = p.Shallow()
		p.Handler = &corev1.ProbeHandler{Exec: command}
	}
	result, message := probe.Run(ctx, p, j.target(spec, action.ID))
	out := podstate.Probed{Probe: action, Message: message}
	switch result {
	case probe.Success:
		out.Result = podstate.ProbeSuccess
	case probe.Failure:
		out.Result = podstate.ProbeFailure
	case probe.Unknown:
		out.Result = podstate.ProbeUnknown
	}
	return out, result
}

// hookKey names a hook that runs.
type hookKey struct {
	id   string
	kind podstate.HookKind
}

// runHook begins a hook, which ends by itself, with its time, or by CancelHook. The caller holds the lock.
func (w *worker) runHook(action podstate.RunHook) {
	job, key := w.job(), hookKey{action.ID, action.Kind}
	ctx, cancel := context.WithCancel(w.agent.context())
	if w.hooks == nil {
		w.hooks = make(map[hookKey]context.CancelFunc)
	}
	w.hooks[key] = cancel
	w.agent.spawn(func(agent context.Context) {
		err := job.hook(ctx, action)
		cancel()
		if agent.Err() != nil {
			return // it was the agent that ended
		}
		w.mu.Lock()
		delete(w.hooks, key)
		if len(w.hooks) == 0 {
			w.hooks = nil
		}
		w.mu.Unlock()
		w.post(podstate.HookRun{Index: action.Index, ID: action.ID, Kind: action.Kind, Failed: err != nil})
	})
}

// hook runs a hook to its end. What went wrong is for the log: it may say what not everybody may know who can read
// events. spec: HOOK-1
func (j job) hook(ctx context.Context, action podstate.RunHook) error {
	limited := ctx
	if action.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, action.Timeout)
		defer cancel()
	}
	spec := podstate.ContainerAt(j.pod, action.Index)
	handler := action.Kind.Of(spec)
	if command := simulatedCommand(j.agent.cfg.Simulated, handler.GetHttpGet(), nil, nil); command != nil {
		handler = &corev1.LifecycleHandler{Exec: command}
	}
	err := hook.Run(limited, handler, j.target(spec, action.ID))
	if err != nil {
		j.warn(ctx, "a hook of a container has failed", fmt.Errorf("container %s: %w", spec.GetName(), err))
	}
	return err
}

// target returns what probes and hooks of one instance of a container need to reach it.
func (j job) target(spec *corev1.Container, id string) probe.Target {
	t := probe.Target{Container: spec, Dial: j.agent.cfg.Dial, Exec: func(
		ctx context.Context, command []string, timeout time.Duration,
	) ([]byte, int32, error) {
		got, err := j.agent.cfg.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
			ContainerId: id, Cmd: command, Timeout: int64((timeout + time.Second - 1) / time.Second),
		})
		return append(got.GetStdout(), got.GetStderr()...), got.GetExitCode(), err
	}}
	if len(j.podIPs) > 0 {
		t.PodIP = j.podIPs[0]
	}
	return t
}

// simulatedCommand returns a command to execute in place of what needs a network: on a machine that does not exist
// there is none, and the runtime decides what comes of a command that is called as the mechanism is. It returns nil
// for what needs no network, and on machines that exist.
func simulatedCommand(
	simulated bool, http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction, grpc *corev1.GRPCAction,
) *corev1.ExecAction {
	switch {
	case !simulated:
		return nil
	case http != nil:
		return &corev1.ExecAction{Command: []string{"httpGet"}}
	case tcp != nil:
		return &corev1.ExecAction{Command: []string{"tcpSocket"}}
	case grpc != nil:
		return &corev1.ExecAction{Command: []string{"grpc"}}
	default:
		return nil
	}
}
