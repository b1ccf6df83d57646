// Package hostports tells which ports of its node a pod takes, and which pods cannot share a node for that reason. The
// scheduler places pods by it (SCHED-4), and the agent has the last word (LIFE-12).
//
// It guarantees the answers of Kubernetes, but for one: the address "::" means all addresses, like "0.0.0.0", since
// the port is then taken on all of them. test/oracle compares them over random pods. It knows nothing of ports of
// services.
package hostports

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/initcontainer"
)

// Port is a port of a node.
type Port struct {
	// IP is the address, All for every one.
	IP string
	// Protocol is TCP, UDP or SCTP.
	Protocol string
	Number   int32
}

// All is the address that stands for all.
const All = "0.0.0.0"

// Of returns the ports that a pod takes as long as it runs: those of its containers and its sidecars.
func Of(spec *corev1.PodSpec) []Port {
	var ports []Port
	for _, c := range spec.GetContainers() {
		ports = appendPorts(ports, c)
	}
	for _, c := range spec.GetInitContainers() {
		if initcontainer.IsSidecar(c) {
			ports = appendPorts(ports, c)
		}
	}
	return ports
}

func appendPorts(ports []Port, c *corev1.Container) []Port {
	for _, p := range c.GetPorts() {
		if p.GetHostPort() <= 0 {
			continue
		}
		h := Port{IP: p.GetHostIP(), Protocol: p.GetProtocol(), Number: p.GetHostPort()}
		if h.IP == "" || h.IP == "::" {
			h.IP = All
		}
		if h.Protocol == "" {
			h.Protocol = "TCP"
		}
		ports = append(ports, h)
	}
	return ports
}

// Conflicts says whether two pods cannot both have their ports.
func (p Port) Conflicts(o Port) bool {
	return p.Number == o.Number && p.Protocol == o.Protocol && (p.IP == o.IP || p.IP == All || o.IP == All)
}

// Taken returns the first port that is wanted and that those taken leave no room for; ok is false when there is none.
func Taken(wanted, taken []Port) (p Port, ok bool) {
	for _, w := range wanted {
		for _, t := range taken {
			if w.Conflicts(t) {
				return w, true
			}
		}
	}
	return Port{}, false
}
