package podspec

import (
	"fmt"
	"slices"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/validation"

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
func (v *Checker) hooksAndProbes(at *validation.Path, c container) {
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
				v.InvalidValue(p.Child("terminationGracePeriodSeconds"), n.probe.TerminationGracePeriodSeconds,
					"must not be set for readinessProbes")
			}
			continue
		}
		if n.probe.GetSuccessThreshold() != 1 {
			v.InvalidValue(p.Child("successThreshold"), n.probe.GetSuccessThreshold(), "must be 1")
		}
	}
}

func (v *Checker) probe(p *validation.Path, probe *corev1.Probe) {
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
		v.NotNegative(p.Child(n.name), int64(n.value))
	}
	if g := probe.TerminationGracePeriodSeconds; g != nil && *g <= 0 {
		v.InvalidValue(p.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0")
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

func (v *Checker) handler(p *validation.Path, h handler) {
	found := false
	for _, k := range []struct {
		name  string
		set   bool
		check func(*validation.Path)
	}{
		{"exec", h.exec != nil, func(p *validation.Path) {
			if len(h.exec.GetCommand()) == 0 {
				v.Required(p.Child("command"), "")
			}
		}},
		{"httpGet", h.http != nil, func(p *validation.Path) { v.httpGet(p, h.http) }},
		{"tcpSocket", h.tcp != nil, func(p *validation.Path) { v.portNumberOrName(p.Child("port"), h.tcp.GetPort()) }},
		{"grpc", h.grpc != nil, func(p *validation.Path) { v.portNumber(p.Child("port"), h.grpc.GetPort()) }},
		{"sleep", h.sleep != nil, func(p *validation.Path) { v.sleep(p, h.sleep.GetSeconds()) }},
	} {
		switch {
		case !k.set:
		case found:
			v.Forbidden(p.Child(k.name), "may not specify more than 1 handler type")
		default:
			found = true
			k.check(p.Child(k.name))
		}
	}
	if !found {
		v.Required(p, "must specify a handler type")
	}
}

func (f *faults) httpGet(p *validation.Path, h *corev1.HTTPGetAction) {
	if h.GetPath() == "" {
		f.Required(p.Child("path"), "")
	}
	f.portNumberOrName(p.Child("port"), h.GetPort())
	f.OneOf(p.Child("scheme"), h.GetScheme(), "HTTP", "HTTPS")
	for _, header := range h.GetHttpHeaders() {
		f.Invalid(p.Child("httpHeaders"), header.GetName(), utilvalidation.IsHTTPHeaderName(header.GetName())...)
	}
}

// sleep checks that a hook does not outlast the grace period that it counts against.
func (v *Checker) sleep(p *validation.Path, seconds int64) {
	if g := v.spec.TerminationGracePeriodSeconds; g != nil && (seconds < 0 || seconds > *g) {
		v.InvalidValue(p, seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *g))
	}
}

func (v *Checker) lifecycle(p *validation.Path, l *corev1.Lifecycle) {
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
		v.Forbidden(at, "may not be set for containers with empty `spec.os.name`")
	case v.spec.GetOs().GetName() == osWindows:
		v.OneOf(at, l.GetStopSignal(), "SIGKILL", "SIGTERM")
	case v.spec.GetOs().GetName() == osLinux:
		v.OneOf(at, l.GetStopSignal(), linuxSignals()...)
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
