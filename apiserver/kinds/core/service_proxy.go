package core

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/podproxy"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// serviceService is the Services service: the standard methods from a backend, and Proxy.
type serviceService struct {
	corev1rpc.ServicesBackend
	endpoints, pods object.Backend
	agents          define.StreamSource
}

// Proxy serves Services.Proxy (CTR-9): the request goes to one of the ready pods, chosen at random.
func (s *serviceService) Proxy(
	stream grpc.BidiStreamingServer[corev1rpc.ProxyServiceRequest, corev1.ProxyOutput],
) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	name, err := podproxy.ParseName("service", req.GetName())
	if err != nil {
		return err
	}
	if s.agents == nil {
		return apierrors.New(apierrors.ServiceUnavailable, "this server has no connection to the agents of nodes")
	}
	ctx := stream.Context()
	o, err := s.Backend.Get(ctx, &metav1.GetRequest{Namespace: req.GetNamespace(), Name: name.Name})
	if err != nil {
		return err
	}
	port, err := portName(o.(*corev1.Service), name.Port)
	if err != nil {
		return err
	}
	to, err := s.choose(ctx, req.GetNamespace(), name.Name, port)
	if err != nil {
		return err
	}
	to.TLS = name.TLS
	return podproxy.Serve(ctx, podproxy.Stream{
		Receive: func() (*corev1.ProxyInput, error) {
			req, err := stream.Recv()
			return req.GetInput(), err
		},
		Send: stream.Send,
	}, req.GetInput(), req.GetPath(), to, s.agents)
}

// portName returns the name of a port of the service that is meant by its number or its name.
func portName(s *corev1.Service, which string) (string, error) {
	if which == "" || strings.Trim(which, "0123456789") != "" {
		return which, nil
	}
	for _, p := range s.GetSpec().GetPorts() {
		if strconv.Itoa(int(p.GetPort())) == which {
			return p.GetName(), nil
		}
	}
	return "", apierrors.New(apierrors.ServiceUnavailable, "no service port %s found for service %q", which,
		s.GetMetadata().GetName())
}

// choose returns one of the ready pods behind a port. Addresses that are not those of a pod of the namespace are
// passed over, whoever has written them.
func (s *serviceService) choose(ctx context.Context, namespace, name, port string) (podproxy.Target, error) {
	o, err := s.endpoints.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		return podproxy.Target{}, err
	}
	type candidate struct {
		address *corev1.EndpointAddress
		port    int32
	}
	var list []candidate
	if err == nil {
		for _, subset := range o.(*corev1.Endpoints).GetSubsets() {
			for _, p := range subset.GetPorts() {
				if p.GetName() != port {
					continue
				}
				for _, a := range subset.GetAddresses() {
					list = append(list, candidate{a, p.GetPort()})
				}
			}
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, c := range list {
		p, err := s.podAt(ctx, namespace, c.address)
		if err != nil {
			return podproxy.Target{}, err
		}
		if p != nil {
			return podproxy.Target{Node: p.GetSpec().GetNodeName(), UID: p.GetMetadata().GetUid(), Port: c.port}, nil
		}
	}
	return podproxy.Target{}, apierrors.New(apierrors.ServiceUnavailable, "no endpoints available for service %q", name)
}

// podAt returns the pod that has an address, nil if none of the namespace does.
func (s *serviceService) podAt(
	ctx context.Context, namespace string, a *corev1.EndpointAddress,
) (*corev1.Pod, error) {
	ref := a.GetTargetRef()
	if ref.GetKind() != corev1.PodKind.Kind || ref.GetNamespace() != namespace {
		return nil, nil
	}
	o, err := s.pods.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: ref.GetName()})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := o.(*corev1.Pod)
	phase := p.GetStatus().GetPhase()
	if phase == "Succeeded" || phase == "Failed" || p.GetSpec().GetNodeName() == "" ||
		!slices.ContainsFunc(p.GetStatus().GetPodIPs(), func(ip *corev1.PodIP) bool { return ip.GetIp() == a.GetIp() }) {
		return nil, nil
	}
	return p, nil
}
