package nodeagent

import (
	"context"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/admission"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/shutdown"
)

// admit decides about one pod at a time, so that two cannot take the same room. The node as last seen may be stale: a
// refusal is decided anew on the node as it is, and not before that can be read; a static pod, which needs no server,
// has to make do with what is known. spec: LIFE-12
func (a *Agent) admit(ctx context.Context, p *corev1.Pod, static bool) podstate.Input {
	if a.downNow() {
		return podstate.Admission{
			Reason: shutdown.RejectReason, Message: "Pod was rejected: " + shutdown.RejectMessage,
		}
	}
	seen := a.nodeNow()
	if seen == nil {
		seen = a.nodeObject()
	}
	d := a.check(p, seen, static)
	if d.Refused != nil && !static {
		node, err := a.readNode(ctx)
		if err != nil {
			return podstate.Admission{Undecided: true}
		}
		d = a.check(p, node, static)
	}
	switch {
	case d.Refused != nil:
		return podstate.Admission{Reason: d.Refused.Reason, Message: d.Refused.Message}
	case d.Wait:
		a.preempt(p, d.Preempt)
		return podstate.Admission{Undecided: true}
	}
	return podstate.Admission{}
}

// preempt stops pods to make room for one on which the system depends.
func (a *Agent) preempt(p *corev1.Pod, victims []*corev1.Pod) {
	const message = "Preempted in order to admit critical pod"
	for _, v := range victims {
		w := a.worker(uidOf(v))
		if w == nil {
			continue
		}
		a.cfg.Logger.Info("stopping a pod to make room for a critical one", "pod", name(v), "critical", name(p))
		a.cfg.Recorder.Event(v, record.Warning, "Preempting", "Preempting", message)
		w.post(podstate.Evict{
			Reason: "Preempting", Message: message, Grace: -1,
			Disruption: "Pod was preempted by Kubelet to accommodate a critical pod.",
		})
	}
}

// check decides whether the node, as given, takes the pod, and makes the pod a holder of its resources if it does.
// Nobody is waited for meanwhile.
func (a *Agent) check(p *corev1.Pod, node *corev1.Node, static bool) admission.Decision {
	a.admitting.Lock()
	defer a.admitting.Unlock()
	d := admission.Decide(admission.Request{
		Pod: p, Static: static, Node: node, Others: a.holders(uidOf(p)), Pressure: a.pressing(),
		Sysctls: a.cfg.sysctls,
	})
	if w := a.worker(uidOf(p)); w != nil && d.Refused == nil && !d.Wait {
		w.hold()
	}
	return d
}

// holders returns the pods, other than uid, that hold resources of the node.
func (a *Agent) holders(uid string) []admission.Holder {
	var out []admission.Holder
	for _, w := range a.list() {
		if w.uid == uid {
			continue
		}
		w.look(func(m *podstate.StateMachine) {
			if (w.holds || m.Life() == podstate.Active || m.Life() == podstate.Stopping) && !m.Empty() {
				holds := w.reserved
				if holds == nil {
					holds = m.Granted()
				}
				out = append(out, admission.Holder{
					Pod: holds, Static: w.static != nil, Leaving: m.Life() >= podstate.Stopping,
				})
			}
		})
	}
	return out
}

func (a *Agent) nodeNow() *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node
}

// readNode reads the Node object from the API.
func (a *Agent) readNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return a.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: a.cfg.NodeName})
}

// note records an event of a pod.
func (a *Agent) note(p *corev1.Pod, n podstate.Note) {
	kind := record.Normal
	if n.Warning {
		kind = record.Warning
	}
	a.cfg.Recorder.EventIn(p, containerPath(p, n.Container), kind, n.Reason, "Running", n.Message)
}

// containerPath names a container of a pod in the way that events refer to it; empty when it has none of that name.
func containerPath(p *corev1.Pod, name string) string {
	s := p.GetSpec()
	switch {
	case name == "":
		return ""
	case slices.ContainsFunc(s.GetContainers(), func(c *corev1.Container) bool { return c.GetName() == name }):
		return "spec.containers{" + name + "}"
	case slices.ContainsFunc(s.GetInitContainers(), func(c *corev1.Container) bool { return c.GetName() == name }):
		return "spec.initContainers{" + name + "}"
	case slices.ContainsFunc(s.GetEphemeralContainers(),
		func(c *corev1.EphemeralContainer) bool { return c.GetEphemeralContainerCommon().GetName() == name }):
		return "spec.ephemeralContainers{" + name + "}"
	default:
		return ""
	}
}
