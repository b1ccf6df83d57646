package proxy

import "net/netip"

// ClusterDNS returns the address at which pods find the cluster's DNS: the tenth of the range of Services, as kubeadm
// has it. It is not valid for a range that has none.
func ClusterDNS(serviceRange netip.Prefix) netip.Addr {
	a := serviceRange.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	if !serviceRange.Contains(a) {
		return netip.Addr{}
	}
	return a
}
