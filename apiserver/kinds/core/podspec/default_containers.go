package podspec

import (
	"monoplane.dev/apiserver/defaults"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	defaultTerminationMessagePath   = "/dev/termination-log"
	defaultTerminationMessagePolicy = "File"
	defaultProtocol                 = "TCP"
	defaultPath                     = "/"
	defaultScheme                   = "HTTP"
	defaultPeriodSeconds            = 10
	defaultFailureThreshold         = 3
	defaultApiVersion               = "v1"
)

func defaultContainers(list []*corev1.Container) {
	for _, c := range list {
		if c == nil {
			continue
		}
		defaults.Set(&c.ImagePullPolicy, pullPolicy(c.Image))
		defaults.Set(&c.TerminationMessagePath, defaultTerminationMessagePath)
		defaults.Set(&c.TerminationMessagePolicy, defaultTerminationMessagePolicy)
		defaultPorts(c.Ports)
		defaultEnv(c.Env)
		c.Resources = defaultRequirements(c.Resources)
		defaultProbe(c.LivenessProbe)
		defaultProbe(c.ReadinessProbe)
		defaultProbe(c.StartupProbe)
		defaultLifecycle(c.Lifecycle)
	}
}

func defaultEphemeralContainer(e *corev1.EphemeralContainer) {
	c := e.GetEphemeralContainerCommon()
	if c == nil {
		return
	}
	defaults.Set(&c.ImagePullPolicy, pullPolicy(c.Image))
	defaults.Set(&c.TerminationMessagePath, defaultTerminationMessagePath)
	defaults.Set(&c.TerminationMessagePolicy, defaultTerminationMessagePolicy)
	defaultPorts(c.Ports)
	defaultEnv(c.Env)
	c.Resources = defaultRequirements(c.Resources)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	defaultLifecycle(c.Lifecycle)
}

func defaultPorts(list []*corev1.ContainerPort) {
	for _, p := range list {
		if p != nil {
			defaults.Set(&p.Protocol, defaultProtocol)
		}
	}
}

// defaultHostPorts gives ports that are the node's the number that they have in the container.
func defaultHostPorts(list []*corev1.Container) {
	for _, c := range list {
		for _, p := range c.GetPorts() {
			if p != nil {
				defaults.Set(&p.HostPort, p.ContainerPort)
			}
		}
	}
}

func defaultEnv(list []*corev1.EnvVar) {
	for _, v := range list {
		defaultFieldRef(v.GetValueFrom().GetFieldRef())
		if f := v.GetValueFrom().GetFileKeyRef(); f != nil {
			defaults.SetPtr(&f.Optional, false)
		}
	}
}

func defaultFieldRef(f *corev1.ObjectFieldSelector) {
	if f != nil {
		defaults.Set(&f.ApiVersion, defaultApiVersion)
	}
}

// defaultRequirements rounds amounts, and makes the field present, as Kubernetes always writes it.
func defaultRequirements(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return &corev1.ResourceRequirements{}
	}
	defaults.Round(r.Limits)
	defaults.Round(r.Requests)
	return r
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	defaults.Set(&p.TimeoutSeconds, 1)
	defaults.Set(&p.PeriodSeconds, defaultPeriodSeconds)
	defaults.Set(&p.SuccessThreshold, 1)
	defaults.Set(&p.FailureThreshold, defaultFailureThreshold)
	defaultHttpGet(p.GetHandler().GetHttpGet())
	if g := p.GetHandler().GetGrpc(); g != nil {
		defaults.SetPtr(&g.Service, "")
	}
}

func defaultLifecycle(l *corev1.Lifecycle) {
	defaultHttpGet(l.GetPostStart().GetHttpGet())
	defaultHttpGet(l.GetPreStop().GetHttpGet())
}

func defaultHttpGet(h *corev1.HTTPGetAction) {
	if h != nil {
		defaults.Set(&h.Path, defaultPath)
		defaults.Set(&h.Scheme, defaultScheme)
	}
}
