//go:build kubernetes

package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

func theirHostPorts(_ testing.TB, one, other *v1.Pod) wantedPorts {
	taken := framework.HostPortInfo{}
	for _, p := range util.GetHostPorts(other) {
		taken.Add(p.HostIP, string(p.Protocol), p.HostPort)
	}
	out := wantedPorts{Ports: util.GetHostPorts(one)}
	for _, p := range out.Ports {
		out.Conflict = out.Conflict || taken.CheckConflict(p.HostIP, string(p.Protocol), p.HostPort)
	}
	return out
}
