package nodeagent

import (
	"context"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/admission"
	"monoplane.dev/nodeagent/podstate"
)

// admit decides about one pod at a time, so that two cannot take the same room. The node as last seen may be stale: a
// refusal is decided anew on the node as it is, and not before that can be read. spec: LIFE-12
func (a *Agent) admit(ctx context.Context, p *corev1.Pod, static bool) podstate.Input {
	seen := a.nodeNow()
	if seen == nil {
		seen = a.nodeObject() // a static pod need not wait for the API
	}
	refused := a.check(p, seen)
	if refused != nil && !static {
		node, err := a.readNode(ctx)
		if err != nil {
			return podstate.Admission{Undecided: true}
		}
		refused = a.check(p, node)
	}
	if refused != nil {
		return podstate.Admission{Reason: refused.Reason, Message: refused.Message}
	}
	return podstate.Admission{}
}

// check decides whether the node, as given, takes the pod, and makes the pod a holder of its resources if it does.
// Nobody is waited for meanwhile.
func (a *Agent) check(p *corev1.Pod, node *corev1.Node) *admission.Refusal {
	a.admitting.Lock()
	defer a.admitting.Unlock()
	refused := admission.Check(p, node, a.holders(uidOf(p)))
	if w := a.worker(uidOf(p)); w != nil && refused == nil {
		w.hold()
	}
	return refused
}

// holders returns the pods, other than uid, that hold resources of the node.
func (a *Agent) holders(uid string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.list() {
		if w.uid == uid {
			continue
		}
		w.look(func(m *podstate.StateMachine) {
			if (w.holds || m.Life() == podstate.Active || m.Life() == podstate.Stopping) && !m.Empty() {
				out = append(out, m.Pod())
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
	a.cfg.Recorder.Event(p, kind, n.Reason, "Running", n.Message)
}
