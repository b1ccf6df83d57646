// Package admission decides whether a node takes a pod that was bound to it: it has the last word, because
// the scheduler may have decided on older facts, and because pods can name a node themselves. It is pure.
//
// Every refusal says which check failed and by how much, in kubelets' words. What only matters before a pod is bound,
// such as affinity between pods and taints that do not evict, is not checked. A critical pod that lacks nothing but
// room gets it from pods that are less important.
package admission

import (
	"fmt"
	"runtime"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/hostports"
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/rules/qos"
	"monoplane.dev/rules/sysctls"
	"monoplane.dev/rules/taints"
)

// Refusal says why a pod is not taken: a CamelCase reason and a sentence, for the pod's status.
type Refusal struct{ Reason, Message string }

// Holder is a pod that holds resources of the node.
type Holder struct {
	Pod *corev1.Pod
	// Static says that it comes from a manifest of the machine.
	Static bool
	// Leaving says that it is being stopped, so that what it holds will be free.
	Leaving bool
}

// Request is a pod to be decided about.
type Request struct {
	Pod *corev1.Pod
	// Static is as for Holder.
	Static bool
	Node   *corev1.Node
	// Others are the pods that hold resources.
	Others []Holder
	// Pressure lists the conditions that say what the node runs out of, such as "MemoryPressure".
	Pressure []string
	// Sysctls are the kernel parameters that pods may set.
	Sysctls sysctls.Allowed
}

// Decision is what becomes of the pod: it is refused, or must wait for room, or is taken.
type Decision struct {
	// Refused is nil unless the pod is refused.
	Refused *Refusal
	// Wait says that the pod is taken once others have gone: those of Preempt, which are to be stopped, and those that
	// are leaving.
	Wait    bool
	Preempt []*corev1.Pod
}

// Decide decides about a pod. spec: LIFE-12
func Decide(r Request) Decision {
	d := decide(r)
	if d.Refused != nil {
		d.Refused = &Refusal{d.Refused.Reason, "Pod was rejected: " + d.Refused.Message}
	}
	return d
}

func decide(r Request) Decision {
	for _, check := range []func(*Request) *Refusal{pressure, kernelParameters, operatingSystem} {
		if refused := check(&r); refused != nil {
			return rejected(refused)
		}
	}
	lacks := lacking(&r)
	others := []func(*Request) *Refusal{affinity, hostPorts, untolerated}
	if len(lacks) > 0 && !Critical(r.Pod, r.Static) {
		return rejected(lacks[0].refusal())
	}
	for _, check := range others {
		if refused := check(&r); refused != nil {
			return rejected(refused)
		}
	}
	if len(lacks) == 0 {
		return Decision{}
	}
	preempt, err := victims(&r, lacks)
	if err != nil {
		return rejected(&Refusal{"UnexpectedAdmissionError",
			"Unexpected error while attempting to recover from admission failure: " + err.Error()})
	}
	return Decision{Wait: true, Preempt: preempt}
}

func rejected(r *Refusal) Decision { return Decision{Refused: r} }

// systemCritical is the least priority of pods on which the system depends.
const systemCritical = 2_000_000_000

// Critical reports whether the system depends on a pod: it is taken also under pressure, and never evicted.
func Critical(p *corev1.Pod, static bool) bool {
	return static || p.GetSpec().GetPriority() >= systemCritical
}

// EvictedReason is the reason of pods that the node stops, or does not take, because it runs out of something.
const EvictedReason = "Evicted"

const (
	memoryPressure      = "MemoryPressure"
	taintMemoryPressure = "node.kubernetes.io/memory-pressure"
)

// pressure refuses what would make things worse. Where only memory is short, pods that have said how much they need
// are taken.
func pressure(r *Request) *Refusal {
	if len(r.Pressure) == 0 || Critical(r.Pod, r.Static) {
		return nil
	}
	if len(r.Pressure) == 1 && r.Pressure[0] == memoryPressure {
		taint := []*corev1.Taint{{Key: taintMemoryPressure, Effect: taints.NoSchedule}}
		if qos.Compute(r.Pod.GetSpec()) != qos.BestEffort ||
			taints.Untolerated(taint, r.Pod.GetSpec().GetTolerations()) == nil {
			return nil
		}
	}
	return &Refusal{EvictedReason, fmt.Sprintf("The node had condition: %v. ", r.Pressure)}
}

func kernelParameters(r *Request) *Refusal {
	if err := r.Sysctls.Check(r.Pod.GetSpec()); err != nil {
		return &Refusal{"SysctlForbidden", err.Error()}
	}
	return nil
}

const labelOS = "kubernetes.io/os"

func operatingSystem(r *Request) *Refusal {
	have := r.Node.GetStatus().GetNodeInfo().GetOperatingSystem()
	if have == "" {
		have = runtime.GOOS
	}
	if want, ok := r.Pod.GetMetadata().GetLabels()[labelOS]; ok && want != have {
		return &Refusal{"PodOSSelectorNodeLabelDoesNotMatch",
			"Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if os := r.Pod.GetSpec().GetOs(); os != nil && os.GetName() != have {
		return &Refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

func affinity(r *Request) *Refusal {
	if !nodeselector.OfPod(r.Pod.GetSpec()).Matches(r.Node) {
		return &Refusal{"NodeAffinity",
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	}
	return nil
}

func hostPorts(r *Request) *Refusal {
	wanted := hostports.Of(r.Pod.GetSpec())
	if len(wanted) == 0 {
		return nil
	}
	for _, o := range r.Others {
		if p, ok := hostports.Taken(wanted, hostports.Of(o.Pod.GetSpec())); ok {
			return &Refusal{"NodePorts", fmt.Sprintf(
				"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports (%s %d is used by %s/%s)",
				p.Protocol, p.Number, o.Pod.GetMetadata().GetNamespace(), o.Pod.GetMetadata().GetName())}
		}
	}
	return nil
}

// untolerated refuses a pod that would be evicted at once.
func untolerated(r *Request) *Refusal {
	evicts := slices.DeleteFunc(slices.Clone(r.Node.GetSpec().GetTaints()),
		func(t *corev1.Taint) bool { return t.GetEffect() != taints.NoExecute })
	if r.Static || taints.Untolerated(evicts, r.Pod.GetSpec().GetTolerations()) == nil {
		return nil
	}
	return &Refusal{"TaintToleration",
		"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"}
}
