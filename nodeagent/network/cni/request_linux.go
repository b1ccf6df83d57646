package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"monoplane.dev/nodeagent/network"
	"monoplane.dev/nodeagent/runtime/oci"
)

// ifName is how the link is called in the pod.
const ifName = "eth0"

// Capabilities that configurations may ask for:
// https://github.com/containernetworking/cni/blob/main/CONVENTIONS.md
const (
	portMappings = "portMappings"
	bandwidth    = "bandwidth"
	ipRanges     = "ipRanges"
)

type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// bandwidthLimit is in bits a second, and bits.
type bandwidthLimit struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

type ipRange struct {
	Subnet netip.Prefix `json:"subnet"`
}

// request is what plugins are asked to add for a sandbox.
func request(list *libcni.NetworkConfigList, s oci.Sandbox, ranges []netip.Prefix) (*record, error) {
	wanted, err := network.Wanted(s.Config)
	if err != nil {
		return nil, err
	}
	m := s.Config.GetMetadata()
	r := &record{Network: list.Name, CNIVersion: list.CNIVersion, Capabilities: map[string]any{}, Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", m.GetNamespace()}, {"K8S_POD_NAME", m.GetName()},
		{"K8S_POD_INFRA_CONTAINER_ID", s.ID}, {"K8S_POD_UID", m.GetUid()},
	}}
	for _, p := range list.Plugins {
		r.Plugins = append(r.Plugins, json.RawMessage(p.Bytes))
	}
	var ports []portMapping
	for _, h := range wanted.HostPorts {
		p := portMapping{HostPort: h.Host.Port(), ContainerPort: h.Port, Protocol: h.Network}
		if !h.Host.Addr().IsUnspecified() {
			p.HostIP = h.Host.Addr().String()
		}
		ports = append(ports, p)
	}
	if len(ports) > 0 {
		r.Capabilities[portMappings] = ports
	}
	if wanted.Ingress > 0 || wanted.Egress > 0 {
		r.Capabilities[bandwidth] = bandwidthLimit{IngressRate: wanted.Ingress, IngressBurst: burst(wanted.Ingress),
			EgressRate: wanted.Egress, EgressBurst: burst(wanted.Egress)}
	}
	var sets [][]ipRange
	for _, p := range ranges {
		sets = append(sets, []ipRange{{p}})
	}
	if len(sets) > 0 {
		r.Capabilities[ipRanges] = sets
	}
	return r, nil
}

// burst is how much may be sent at once after a pause: a tenth of a second's, as in the network of Monoplane's own,
// and more than a packet that the kernel hands on undivided.
func burst(rate uint64) uint64 {
	if rate == 0 {
		return 0
	}
	return min(max(rate/10, 128<<13), math.MaxUint32)
}

// addresses are the pod's in what plugins have answered: one of each family, that of IPv4 first.
func addresses(answer types.Result) ([]netip.Addr, error) {
	result, err := types100.NewResultFromResult(answer)
	if err != nil {
		return nil, fmt.Errorf("what the plugins of CNI answer: %w", err)
	}
	var four, six []netip.Addr
	for _, ip := range result.IPs {
		if i := ip.Interface; i != nil {
			if *i < 0 || *i >= len(result.Interfaces) {
				return nil, fmt.Errorf("what the plugins of CNI answer: %s belongs to the interface %d of %d", ip.Address.IP, *i,
					len(result.Interfaces))
			}
			if of := result.Interfaces[*i]; of.Sandbox == "" || of.Name != ifName {
				continue // on the machine, or another one of the pod's
			}
		}
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("what the plugins of CNI answer: %v is no address", ip.Address.IP)
		}
		if addr = addr.Unmap(); addr.Is4() {
			four = append(four, addr)
		} else {
			six = append(six, addr)
		}
	}
	all := append(four[:min(1, len(four))], six[:min(1, len(six))]...)
	if len(all) == 0 {
		return nil, errors.New("the plugins of CNI have given the pod no address")
	}
	return all, nil
}
