package enforcer

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/policies"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/staticpod"
)

// takeIn tells the world what has changed in the API. e.mu is held.
func (e *Enforcer) takeIn() {
	e.pendingMu.Lock()
	now := e.pending
	e.pending = newChanges()
	e.pendingMu.Unlock()
	w := e.watched
	for name := range now.namespaces {
		n, ok := w.namespaces.Get("", name)
		e.world.SetNamespace(name, n.GetMetadata().GetLabels(), ok)
	}
	if len(now.pods) > 0 {
		here := map[cache.Key][]Sandbox{}
		for _, s := range e.sandboxes {
			key := cache.Key{Namespace: s.Namespace, Name: s.Name}
			here[key] = append(here[key], s)
		}
		for key := range now.pods {
			e.setElsewhere(key)
			for _, s := range here[key] {
				e.setSandbox(s)
			}
		}
	}
	// Policies come last, when the pods are known that they select.
	for key := range now.policies {
		p, _ := w.policies.Get(key.Namespace, key.Name)
		e.world.SetPolicy(key, p)
	}
}

// setElsewhere tells the world of a pod that is not on this node; what is here is known by its sandbox.
func (e *Enforcer) setElsewhere(key cache.Key) {
	p, ok := e.watched.pods.Get(key.Namespace, key.Name)
	var out *policies.Pod
	if ok && p.GetSpec().GetNodeName() != e.watched.node && !p.GetSpec().GetHostNetwork() && !phase.Terminal(p) {
		if addrs := addresses(p); len(addrs) > 0 {
			out = &policies.Pod{Labels: p.GetMetadata().GetLabels(), Addrs: addrs, Ports: namedPorts(p)}
		}
	}
	e.world.SetPod(key.Namespace, "pod/"+key.Name, out)
}

// setSandbox tells the world of a pod that is connected here.
func (e *Enforcer) setSandbox(s Sandbox) {
	out := &policies.Pod{Labels: s.Labels, Addrs: s.Addrs, Here: true}
	if p, ok := e.watched.pods.Get(s.Namespace, s.Name); ok && isPod(p, s.UID) {
		out.Labels, out.Ports = p.GetMetadata().GetLabels(), namedPorts(p)
	}
	e.world.SetPod(s.Namespace, sandboxID(s.ID), out)
}

func sandboxID(id string) string { return "sandbox/" + id }

// isPod tells whether a sandbox is of this pod, and not of one that had its name before. The API has another uid for a
// static pod than the agent.
func isPod(p *corev1.Pod, uid string) bool {
	m := p.GetMetadata()
	return m.GetUid() == uid || staticpod.IsMirror(m) && m.GetAnnotations()[staticpod.Hash] == uid
}

// addresses returns those of a pod's status, at most one of each family.
func addresses(p *corev1.Pod) []netip.Addr {
	texts := []string{p.GetStatus().GetPodIP()}
	for _, ip := range p.GetStatus().GetPodIPs() {
		texts = append(texts, ip.GetIp())
	}
	var out []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err == nil && !slices.ContainsFunc(out, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			out = append(out, a)
		}
	}
	return out
}

// namedPorts returns the ports that containers of a pod have by a name. Init containers have ports only where they go
// on running beside the others.
func namedPorts(p *corev1.Pod) []policies.NamedPort {
	containers := p.GetSpec().GetContainers()
	for _, c := range p.GetSpec().GetInitContainers() {
		if c.GetRestartPolicy() == "Always" {
			containers = append(containers[:len(containers):len(containers)], c)
		}
	}
	var out []policies.NamedPort
	for _, c := range containers {
		for _, port := range c.GetPorts() {
			if n := port.GetContainerPort(); port.GetName() != "" && n >= 1 && n <= 65535 {
				out = append(out, policies.NamedPort{
					Name: port.GetName(), Protocol: strings.ToLower(port.GetProtocol()), Number: uint16(n), //nolint:gosec // in range
				})
			}
		}
	}
	return out
}
