package criconfig

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
)

// apiNamespace and apiName are where the Service of the API server is.
const (
	apiNamespace = "default"
	apiName      = "kubernetes"
)

// setServices sets the variables by which programs in pods find the API server and, unless the pod has
// enableServiceLinks: false, the Services of its namespace. A Service that the namespace has of the API server's name
// takes its place, as in Kubernetes. spec: LIFE-8
func (f Facts) setServices(p *corev1.Pod, e *environment) error {
	services, err := f.services(p)
	if err != nil {
		return err
	}
	replaced := false
	for _, s := range services {
		replaced = replaced || s.GetMetadata().GetName() == apiName
	}
	if !replaced {
		f.setAPI(p, e)
	}
	for _, s := range services {
		setService(s, e)
	}
	return nil
}

// services returns the Services that are announced to a pod: those that have an address. That of the API server is
// not among them, since setAPI announces the server itself.
func (f Facts) services(p *corev1.Pod) ([]*corev1.Service, error) {
	if f.Content.Services == nil || p.GetSpec().EnableServiceLinks != nil && !p.GetSpec().GetEnableServiceLinks() {
		return nil, nil
	}
	all, err := f.Content.Services()
	if err != nil {
		return nil, fmt.Errorf("failed to list services when setting up env vars: %w", err)
	}
	var out []*corev1.Service
	for _, s := range all {
		m, ip := s.GetMetadata(), s.GetSpec().GetClusterIP()
		ofAPI := m.GetName() == apiName && m.GetNamespace() == apiNamespace
		if ip != "" && ip != "None" && len(s.GetSpec().GetPorts()) > 0 && !ofAPI {
			out = append(out, s)
		}
	}
	return out, nil
}

// setService sets the variables of a Service: its address and ports, and besides those that links between containers
// of Docker had. The first port is also the Service's own.
func setService(s *corev1.Service, e *environment) {
	host, ports := s.GetSpec().GetClusterIP(), s.GetSpec().GetPorts()
	name := variable(s.GetMetadata().GetName())
	e.set(name+"_SERVICE_HOST", host)
	e.set(name+"_SERVICE_PORT", strconv.Itoa(int(ports[0].GetPort())))
	for _, p := range ports {
		if p.GetName() != "" {
			e.set(name+"_SERVICE_PORT_"+variable(p.GetName()), strconv.Itoa(int(p.GetPort())))
		}
	}
	for i, p := range ports {
		protocol, port := p.GetProtocol(), strconv.Itoa(int(p.GetPort()))
		if protocol == "" {
			protocol = "TCP"
		}
		lower := strings.ToLower(protocol)
		url := lower + "://" + net.JoinHostPort(host, port)
		if i == 0 {
			e.set(name+"_PORT", url)
		}
		named := name + "_PORT_" + port + "_" + strings.ToUpper(protocol)
		e.set(named, url)
		e.set(named+"_PROTO", lower)
		e.set(named+"_PORT", port)
		e.set(named+"_ADDR", host)
	}
}

// variable returns a name of a Service or port as it is in names of variables.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
