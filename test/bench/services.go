package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/network/services"
	"monoplane.dev/rules/endpoint"
)

const (
	benchServiceRange = "10.212.0.0/16"
	// manyServices is how many there are beside the one that is measured.
	manyServices = 10_000
	// mostUpdate is how long a change of one Service may take among them.
	mostUpdate = 50 * time.Millisecond
)

// benchServices sends through a cluster IP, to the same pod as without, and changes a Service among many.
func benchServices(
	ctx context.Context, e *env, n *nodens.Namespace, rounds int, send func(to string) func(int) (float64, error),
	bare func(int) (float64, error),
) error {
	count := e.size(manyServices)
	applier, err := applyServices(ctx, n, count)
	if err != nil {
		return err
	}
	p, err := paired(rounds, send(benchClusterIP(0)+benchPort), bare)
	if err != nil {
		return err
	}
	e.gigabits(fmt.Sprintf("pod to pod by a cluster IP, among %d", count), p, "bare veth pair", 0.9)
	const updates = 51
	var took []float64
	for i := range updates {
		begun := time.Now()
		// An endpoint comes, and goes.
		pods := []string{benchPodA, benchPodB}[:1+i%2]
		if err := applier.Apply(ctx, []services.Change{benchService(1, pods...)}); err != nil {
			return err
		}
		took = append(took, time.Since(begun).Seconds())
	}
	middle := time.Duration(median(took) * float64(time.Second))
	e.print(row{name: fmt.Sprintf("change of a Service among %d", count), measured: fmt.Sprintf("%.1f ms", ms(middle)),
		target: fmt.Sprintf("<= %.0f ms", ms(mostUpdate)), met: middle <= mostUpdate})
	return nil
}

// applyServices makes one Service of the second pod, and count beside it.
func applyServices(ctx context.Context, n *nodens.Namespace, count int) (*services.Applier, error) {
	applier, err := services.NewApplier(services.Config{NFTables: n.NFTables, Netfilter: n.Netfilter,
		Inside: []netip.Prefix{netip.MustParsePrefix(benchPods)}})
	if err != nil {
		return nil, err
	}
	all := make([]services.Change, 0, count+1)
	for i := range count + 1 {
		all = append(all, benchService(i, benchPodB))
	}
	return applier, applier.Apply(ctx, all)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

func benchClusterIP(number int) string { return fmt.Sprintf("10.212.%d.%d", number/250, number%250+1) }

// benchService is a Service with the port of the sinks, which leads to pods.
func benchService(number int, pods ...string) services.Change {
	name, port, portNumber, protocol, ready := fmt.Sprint("s", number), "p", int32(5201), "TCP", true
	s := &corev1.Service{
		Metadata: &metav1.ObjectMeta{Namespace: "bench", Name: name, Uid: name},
		Spec: &corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: benchClusterIP(number),
			Ports: []*corev1.ServicePort{{Name: port, Protocol: protocol, Port: portNumber}}},
	}
	slice := &discoveryv1.EndpointSlice{
		Metadata: &metav1.ObjectMeta{Namespace: "bench", Name: name,
			Labels: map[string]string{endpoint.ServiceName: name}},
		AddressType: "IPv4",
		Ports:       []*discoveryv1.EndpointPort{{Name: &port, Protocol: &protocol, Port: &portNumber}},
	}
	for _, p := range pods {
		slice.Endpoints = append(slice.Endpoints, &discoveryv1.Endpoint{Addresses: []string{p},
			Conditions: &discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}})
	}
	return services.Change{Service: cache.KeyOf(s),
		Rules: services.Compile(services.Node{Name: "here"}, s, []*discoveryv1.EndpointSlice{slice})}
}
