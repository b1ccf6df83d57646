package network

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestWanted(t *testing.T) {
	got, err := Wanted(&runtimeapi.PodSandboxConfig{
		Annotations: map[string]string{ingressBandwidth: "10M", egressBandwidth: "1Gi"},
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 80}, {ContainerPort: 80, HostPort: 8080},
			{ContainerPort: 53, HostPort: 5353, Protocol: runtimeapi.Protocol_UDP, HostIp: "127.0.0.1"}},
	})
	if err != nil || got.Ingress != 10_000_000 || got.Egress != 1<<30 || len(got.HostPorts) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a, b := got.HostPorts[0], got.HostPorts[1]; a.Network != "tcp" || a.Host.String() != "[::]:8080" || a.Port != 80 ||
		b.Network != "udp" || b.Host.String() != "127.0.0.1:5353" || b.Port != 53 {
		t.Errorf("the host ports are %+v", got.HostPorts)
	}
}

func TestWantedRefused(t *testing.T) {
	for want, config := range map[string]*runtimeapi.PodSandboxConfig{
		"no quantity":  {Annotations: map[string]string{ingressBandwidth: "fast"}},
		"from 1k":      {Annotations: map[string]string{egressBandwidth: "10"}},
		"1P":           {Annotations: map[string]string{egressBandwidth: "2P"}},
		"TCP or UDP":   {PortMappings: []*runtimeapi.PortMapping{{HostPort: 1, ContainerPort: 1, Protocol: 2}}},
		"1 to 65535":   {PortMappings: []*runtimeapi.PortMapping{{HostPort: 70000, ContainerPort: 1}}},
		"address of t": {PortMappings: []*runtimeapi.PortMapping{{HostPort: 1, ContainerPort: 1, HostIp: "here"}}},
	} {
		if _, err := Wanted(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", config, err, want)
		}
	}
}
