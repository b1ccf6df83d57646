package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func (f *faults) ports(p *fieldPath, ports []*corev1.ContainerPort) {
	if len(ports) == 0 {
		return
	}
	names := map[string]bool{}
	for i, port := range ports {
		at := p.Index(i)
		if name := port.GetName(); name != "" {
			msgs := wrongPortName(name)
			f.invalid(at.Child("name"), name, msgs...)
			if names[name] {
				f.duplicate(at.Child("name"), name)
			}
			names[name] = len(msgs) == 0
		}
		if port.GetContainerPort() == 0 {
			f.required(at.Child("containerPort"), "")
		} else {
			f.portNumber(at.Child("containerPort"), port.GetContainerPort())
		}
		if port.GetHostPort() != 0 {
			f.portNumber(at.Child("hostPort"), port.GetHostPort())
		}
		f.requiredOneOf(at.Child("protocol"), port.GetProtocol(), "SCTP", "TCP", "UDP")
	}
}

func (f *faults) portNumber(p *fieldPath, n int32) {
	if wrong := validation.IsValidPortNum(int(n)); len(wrong) > 0 {
		f.invalidValue(p, n, wrong...)
	}
}

// hostPorts refuses two containers that would take the same port of the node. taken is shared by the
// containers that run at the same time.
func (f *faults) hostPorts(at *fieldPath, c container, taken map[string]bool) {
	for i, port := range c.GetPorts() {
		if port.GetHostPort() == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", port.GetProtocol(), port.GetHostIP(), port.GetHostPort())
		if taken[key] {
			f.duplicate(at.Child("ports").Index(i).Child("hostPort"), key)
		}
		taken[key] = true
	}
}

// hostNetworkPorts checks that containers on the node's network publish their ports as they are.
func (v *pod) hostNetworkPorts(p *fieldPath) {
	if !v.spec.GetHostNetwork() {
		return
	}
	for i, c := range v.spec.GetContainers() {
		for j, port := range c.GetPorts() {
			if port.GetHostPort() != port.GetContainerPort() {
				v.invalidValue(p.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"),
					port.GetHostPort(), "must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

// portNumberOrName checks the port of a probe or hook.
func (f *faults) portNumberOrName(p *fieldPath, port *metav1.IntOrString) {
	switch port.GetType() {
	case 0:
		f.portNumber(p, port.GetIntVal())
	case 1:
		f.invalid(p, port.GetStrVal(), wrongPortName(port.GetStrVal())...)
	default:
		f.invalidValue(p, port.GetType(), "must be a number or a name")
	}
}
