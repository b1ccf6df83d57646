package criconfig

import (
	"net/netip"
	"strconv"

	corev1 "monoplane.dev/api/core/v1"
)

// setAPI sets the variables by which programs in pods find the API server, those of a Service "kubernetes". There are
// none when the pod cannot reach the server: a server that listens on the loopback is there only for pods on the
// node's network.
func (f Facts) setAPI(p *corev1.Pod, e *environment) {
	at := f.apiFor(p)
	if !at.IsValid() {
		return
	}
	host, port := at.Addr().String(), strconv.Itoa(int(at.Port()))
	url := "tcp://" + at.String()
	named := "KUBERNETES_PORT_" + port + "_TCP"
	for _, v := range [...][2]string{
		{"KUBERNETES_SERVICE_HOST", host},
		{"KUBERNETES_SERVICE_PORT", port},
		{"KUBERNETES_SERVICE_PORT_HTTPS", port},
		{"KUBERNETES_PORT", url},
		{named, url},
		{named + "_PROTO", "tcp"},
		{named + "_PORT", port},
		{named + "_ADDR", host},
	} {
		e.set(v[0], v[1])
	}
}

// apiFor returns where a pod reaches the API server; not valid when it does not.
func (f Facts) apiFor(p *corev1.Pod) netip.AddrPort {
	at := f.Content.API
	if !at.IsValid() {
		return at
	}
	// A runtime that gives pods no network of their own leaves them the node's addresses.
	onNode := p.GetSpec().GetHostNetwork() || first(f.PodIPs) == first(f.HostIPs)
	if s := f.Content.APIService; s.IsValid() && !onNode {
		return s
	}
	addr := at.Addr().Unmap()
	switch {
	case addr.IsUnspecified() && onNode:
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case addr.IsUnspecified():
		addr, _ = netip.ParseAddr(first(f.HostIPs))
	case addr.IsLoopback() && !onNode:
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr.WithZone(""), at.Port())
}
