package nodeagent

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/probe"
)

// probe makes one attempt of a probe. spec: PROBE-1
func (j job) probe(ctx context.Context, action podstate.Probe) podstate.Input {
	spec := podstate.ContainerAt(j.pod, action.Index)
	p := action.Kind.Of(spec)
	if j.agent.cfg.Simulated {
		p = simulatedProbe(p)
	}
	result, message := probe.Run(ctx, p, j.target(spec, action.ID))
	out := podstate.Probed{Index: action.Index, ID: action.ID, Kind: action.Kind, Message: message}
	switch result {
	case probe.Success:
		out.Result = podstate.ProbeSuccess
	case probe.Failure:
		out.Result = podstate.ProbeFailure
	case probe.Unknown:
		out.Result = podstate.ProbeUnknown
	}
	return out
}

// target returns what probes and hooks of one instance of a container need to reach it.
func (j job) target(spec *corev1.Container, id string) probe.Target {
	t := probe.Target{Container: spec, Exec: func(
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

// simulatedProbe returns a probe for a machine that does not exist, so that there is no network either: the runtime
// decides what comes of it, as of a command that is called as the mechanism is.
func simulatedProbe(p *corev1.Probe) *corev1.Probe {
	command := ""
	switch h := p.GetHandler(); {
	case h.GetHttpGet() != nil:
		command = "httpGet"
	case h.GetTcpSocket() != nil:
		command = "tcpSocket"
	case h.GetGrpc() != nil:
		command = "grpc"
	default:
		return p
	}
	p = p.Shallow()
	p.Handler = &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
	return p
}
