package defaults

import (
	corev1 "monoplane.dev/api/core/v1"
)

const (
	terminationMessagePath   = "/dev/termination-log"
	terminationMessagePolicy = "File"
	protocol                 = "TCP"
	path                     = "/"
	scheme                   = "HTTP"
	periodSeconds            = 10
	failureThreshold         = 3
	apiVersion               = "v1"
)

func containers(list []*corev1.Container, hostNetwork bool) {
	for _, c := range list {
		if c == nil {
			continue
		}
		set(&c.ImagePullPolicy, pullPolicy(c.Image))
		set(&c.TerminationMessagePath, terminationMessagePath)
		set(&c.TerminationMessagePolicy, terminationMessagePolicy)
		ports(c.Ports, hostNetwork)
		env(c.Env)
		c.Resources = requirements(c.Resources)
		probe(c.LivenessProbe)
		probe(c.ReadinessProbe)
		probe(c.StartupProbe)
		lifecycle(c.Lifecycle)
	}
}

func ephemeralContainer(e *corev1.EphemeralContainer) {
	c := e.GetEphemeralContainerCommon()
	if c == nil {
		return
	}
	set(&c.ImagePullPolicy, pullPolicy(c.Image))
	set(&c.TerminationMessagePath, terminationMessagePath)
	set(&c.TerminationMessagePolicy, terminationMessagePolicy)
	ports(c.Ports, false)
	env(c.Env)
	c.Resources = requirements(c.Resources)
	probe(c.LivenessProbe)
	probe(c.ReadinessProbe)
	probe(c.StartupProbe)
	lifecycle(c.Lifecycle)
}

func ports(list []*corev1.ContainerPort, hostNetwork bool) {
	for _, p := range list {
		if p == nil {
			continue
		}
		set(&p.Protocol, protocol)
		if hostNetwork {
			set(&p.HostPort, p.ContainerPort)
		}
	}
}

func env(list []*corev1.EnvVar) {
	for _, v := range list {
		fieldRef(v.GetValueFrom().GetFieldRef())
		if f := v.GetValueFrom().GetFileKeyRef(); f != nil {
			setPtr(&f.Optional, false)
		}
	}
}

func fieldRef(f *corev1.ObjectFieldSelector) {
	if f != nil {
		set(&f.ApiVersion, apiVersion)
	}
}

// requirements rounds amounts, and makes the field present, as Kubernetes always writes it.
func requirements(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return &corev1.ResourceRequirements{}
	}
	roundAll(r.Limits)
	roundAll(r.Requests)
	return r
}

func probe(p *corev1.Probe) {
	if p == nil {
		return
	}
	set(&p.TimeoutSeconds, 1)
	set(&p.PeriodSeconds, periodSeconds)
	set(&p.SuccessThreshold, 1)
	set(&p.FailureThreshold, failureThreshold)
	httpGet(p.GetHandler().GetHttpGet())
	if g := p.GetHandler().GetGrpc(); g != nil {
		setPtr(&g.Service, "")
	}
}

func lifecycle(l *corev1.Lifecycle) {
	httpGet(l.GetPostStart().GetHttpGet())
	httpGet(l.GetPreStop().GetHttpGet())
}

func httpGet(h *corev1.HTTPGetAction) {
	if h != nil {
		set(&h.Path, path)
		set(&h.Scheme, scheme)
	}
}
