package service

import (
	"fmt"
	"slices"
	"strings"

	"monoplane.dev/apiserver/kinds/define"

	corev1 "monoplane.dev/api/core/v1"
)

// columns is what kubectl get shows.
func columns() define.Columns[*corev1.Service] {
	return define.Columns[*corev1.Service]{
		define.Text("Type", "How the service is reached.", func(o *corev1.Service) string { return o.GetSpec().GetType() }),
		define.Text("Cluster-IP", "Address in the cluster.", func(o *corev1.Service) string {
			if list := o.GetSpec().GetClusterIPs(); len(list) > 0 {
				return list[0]
			}
			return "<none>"
		}),
		define.Text("External-IP", "Where the service is reached from outside.", outside),
		define.Text("Port(s)", "Ports of the service, and of the nodes.", func(o *corev1.Service) string {
			return define.OrNone(portsText(o.GetSpec().GetPorts()))
		}),
		define.Age[*corev1.Service](),
		define.Text("Selector", "Labels of the pods.", func(o *corev1.Service) string {
			return labelsText(o.GetSpec().GetSelector())
		}).Wide(),
	}
}

// outside is where a Service is reached from outside of the cluster.
func outside(o *corev1.Service) string {
	s := o.GetSpec()
	list := s.GetExternalIPs()
	switch s.GetType() {
	case ClusterIP, NodePort:
		return define.OrNone(strings.Join(list, ","))
	case ExternalName:
		return s.GetExternalName()
	case LoadBalancer:
		all := slices.Concat(balancers(o.GetStatus().GetLoadBalancer()), list)
		if len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	default:
		return "<unknown>"
	}
}

// balancers are the addresses of a load balancer, or its names.
func balancers(s *corev1.LoadBalancerStatus) []string {
	var out []string
	for _, at := range s.GetIngress() {
		switch {
		case at.GetIp() != "":
			out = append(out, at.GetIp())
		case at.GetHostname() != "":
			out = append(out, at.GetHostname())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func portsText(ports []*corev1.ServicePort) string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = fmt.Sprintf("%d/%s", p.GetPort(), p.GetProtocol())
		if p.GetNodePort() > 0 {
			out[i] = fmt.Sprintf("%d:%d/%s", p.GetPort(), p.GetNodePort(), p.GetProtocol())
		}
	}
	return strings.Join(out, ",")
}

// labelsText is a set of labels as kubectl shows it.
func labelsText(set map[string]string) string {
	out := make([]string, 0, len(set))
	for k, v := range set {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return define.OrNone(strings.Join(out, ","))
}
