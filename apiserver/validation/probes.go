package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
)

type namedProbe struct {
	name  string
	probe *corev1.Probe
}

func probesOf(c container) [3]namedProbe {
	return [...]namedProbe{
		{"livenessProbe", c.GetLivenessProbe()},
		{"readinessProbe", c.GetReadinessProbe()},
		{"startupProbe", c.GetStartupProbe()},
	}
}

// hooksAndProbes checks the lifecycle and the probes of a container that keeps running (PROBE-1, HOOK-1).
func (v *pod) hooksAndProbes(at *fieldPath, c container) {
	if l := c.GetLifecycle(); l != nil {
		v.lifecycle(at.Child("lifecycle"), l)
	}
	for _, n := range probesOf(c) {
		if n.probe == nil {
			continue
		}
		p := at.Child(n.name)
		v.probe(p, n.probe)
		if n.name == "readinessProbe" {
			if n.probe.TerminationGracePeriodSeconds != nil {
				v.invalidValue(p.Child("terminationGracePeriodSeconds"), n.probe.TerminationGracePeriodSeconds,
					"must not be set for readinessProbes")
			}
			continue
		}
		if n.probe.GetSuccessThreshold() != 1 {
			v.invalidValue(p.Child("successThreshold"), n.probe.GetSuccessThreshold(), "must be 1")
		}
	}
}

func (v *pod) probe(p *fieldPath, probe *corev1.Probe) {
	h := probe.GetHandler()
	v.handler(p, handler{h.GetExec(), h.GetHttpGet(), h.GetTcpSocket(), h.GetGrpc(), nil})
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", probe.GetInitialDelaySeconds()},
		{"timeoutSeconds", probe.GetTimeoutSeconds()},
		{"periodSeconds", probe.GetPeriodSeconds()},
		{"successThreshold", probe.GetSuccessThreshold()},
		{"failureThreshold", probe.GetFailureThreshold()},
	} {
		v.notNegative(p.Child(n.name), int64(n.value))
	}
	if g := probe.TerminationGracePeriodSeconds; g != nil && *g <= 0 {
		v.invalidValue(p.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0")
	}
}

// handler is what a probe or a hook does; exactly one is set.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func (v *pod) handler(p *fieldPath, h handler) {
	found := false
	for _, k := range []struct {
		name  string
		set   bool
		check func(*fieldPath)
	}{
		{"exec", h.exec != nil, func(p *fieldPath) {
			if len(h.exec.GetCommand()) == 0 {
				v.required(p.Child("command"), "")
			}
		}},
		{"httpGet", h.http != nil, func(p *fieldPath) { v.httpGet(p, h.http) }},
		{"tcpSocket", h.tcp != nil, func(p *fieldPath) { v.portNumberOrName(p.Child("port"), h.tcp.GetPort()) }},
		{"grpc", h.grpc != nil, func(p *fieldPath) { v.portNumber(p.Child("port"), h.grpc.GetPort()) }},
		{"sleep", h.sleep != nil, func(p *fieldPath) { v.sleep(p, h.sleep.GetSeconds()) }},
	} {
		switch {
		case !k.set:
		case found:
			v.forbidden(p.Child(k.name), "may not specify more than 1 handler type")
		default:
			found = true
			k.check(p.Child(k.name))
		}
	}
	if !found {
		v.required(p, "must specify a handler type")
	}
}

func (f *faults) httpGet(p *fieldPath, h *corev1.HTTPGetAction) {
	if h.GetPath() == "" {
		f.required(p.Child("path"), "")
	}
	f.portNumberOrName(p.Child("port"), h.GetPort())
	f.oneOf(p.Child("scheme"), h.GetScheme(), "HTTP", "HTTPS")
	for _, header := range h.GetHttpHeaders() {
		f.invalid(p.Child("httpHeaders"), header.GetName(), validation.IsHTTPHeaderName(header.GetName())...)
	}
}

// sleep checks that a hook does not outlast the grace period that it counts against.
func (v *pod) sleep(p *fieldPath, seconds int64) {
	if g := v.spec.TerminationGracePeriodSeconds; g != nil && (seconds < 0 || seconds > *g) {
		v.invalidValue(p, seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *g))
	}
}

func (v *pod) lifecycle(p *fieldPath, l *corev1.Lifecycle) {
	for _, h := range []struct {
		name string
		hook *corev1.LifecycleHandler
	}{{"postStart", l.GetPostStart()}, {"preStop", l.GetPreStop()}} {
		if h.hook != nil {
			v.handler(p.Child(h.name),
				handler{h.hook.GetExec(), h.hook.GetHttpGet(), h.hook.GetTcpSocket(), nil, h.hook.GetSleep()})
		}
	}
	if l.StopSignal == nil {
		return
	}
	switch at := p.Child("stopSignal"); {
	case v.spec.GetOs() == nil:
		v.forbidden(at, "may not be set for containers with empty `spec.os.name`")
	case v.spec.GetOs().GetName() == osWindows:
		v.oneOf(at, l.GetStopSignal(), "SIGKILL", "SIGTERM")
	case v.spec.GetOs().GetName() == osLinux:
		v.oneOf(at, l.GetStopSignal(), linuxSignals()...)
	}
}

// linuxSignals returns the names of signals that may stop a container, sorted.
func linuxSignals() []string {
	names := []string{
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT",
		"SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX", "SIGRTMIN",
		"SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU",
		"SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
	}
	for i := 1; i <= 15; i++ {
		names = append(names, fmt.Sprintf("SIGRTMIN+%d", i))
	}
	for i := 1; i <= 14; i++ {
		names = append(names, fmt.Sprintf("SIGRTMAX-%d", i))
	}
	slices.Sort(names)
	return names
}
