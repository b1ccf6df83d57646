package podspec

import (
	"fmt"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func (f *faults) ports(p *validation.Path, ports []*corev1.ContainerPort) {
	if len(ports) == 0 {
		return
	}
	names := map[string]bool{}
	for i, port := range ports {
		at := p.Index(i)
		if name := port.GetName(); name != "" {
			msgs := validation.WrongPortName(name)
			f.Invalid(at.Child("name"), name, msgs...)
			if names[name] {
				f.Duplicate(at.Child("name"), name)
			}
			names[name] = len(msgs) == 0
		}
		if port.GetContainerPort() == 0 {
			f.Required(at.Child("containerPort"), "")
		} else {
			f.portNumber(at.Child("containerPort"), port.GetContainerPort())
		}
		if port.GetHostPort() != 0 {
			f.portNumber(at.Child("hostPort"), port.GetHostPort())
		}
		f.RequiredOneOf(at.Child("protocol"), port.GetProtocol(), "SCTP", "TCP", "UDP")
	}
}

func (f *faults) portNumber(p *validation.Path, n int32) {
	if wrong := utilvalidation.IsValidPortNum(int(n)); len(wrong) > 0 {
		f.InvalidValue(p, n, wrong...)
	}
}

// hostPorts refuses two containers that would take the same port of the node. taken is shared by the
// containers that run at the same time.
func (f *faults) hostPorts(at *validation.Path, c container, taken map[string]bool) {
	for i, port := range c.GetPorts() {
		if port.GetHostPort() == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", port.GetProtocol(), port.GetHostIP(), port.GetHostPort())
		if taken[key] {
			f.Duplicate(at.Child("ports").Index(i).Child("hostPort"), key)
		}
		taken[key] = true
	}
}

// hostNetworkPorts checks that containers on the node's network publish their ports as they are. A template may leave
// it to its pods to say so (DefaultOfPod).
func (v *Checker) hostNetworkPorts(p *validation.Path) {
	if !v.spec.GetHostNetwork() {
		return
	}
	for i, c := range v.spec.GetContainers() {
		for j, port := range c.GetPorts() {
			if v.template && port.GetHostPort() == 0 {
				continue
			}
			if port.GetHostPort() != port.GetContainerPort() {
				v.InvalidValue(p.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"),
					port.GetHostPort(), "must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

// portNumberOrName checks the port of a probe or hook.
func (f *faults) portNumberOrName(p *validation.Path, port *metav1.IntOrString) {
	switch port.GetType() {
	case 0:
		f.portNumber(p, port.GetIntVal())
	case 1:
		f.Invalid(p, port.GetStrVal(), validation.WrongPortName(port.GetStrVal())...)
	default:
		f.InvalidValue(p, port.GetType(), "must be a number or a name")
	}
}
