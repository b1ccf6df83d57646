package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
)

// endpoints measures how long it takes from a pod that is seen Ready to its endpoint that is, with 10 pods for each of
// some services, all of which start at once.
func endpoints(
	ctx context.Context, s *side, c *client.Client, prefix string, services int, note report,
) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	const each = 10
	pods, err := c.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", LabelSelector: prefix})
	if err != nil {
		return err
	}
	parts, err := c.EndpointSlices.Watch(ctx, &metav1.WatchRequest{
		Namespace: "default", LabelSelector: "kubernetes.io/service-name," + prefix,
	})
	if err != nil {
		return err
	}
	used, err := s.cpu()
	if err != nil {
		return err
	}
	ready, there := map[string]time.Time{}, map[string]time.Time{}
	var g errgroup.Group
	g.Go(func() error {
		for len(ready) < services*each {
			batch, err := pods.Recv()
			if err != nil {
				return fmt.Errorf("%d pods are ready: %w", len(ready), err)
			}
			for _, event := range batch.GetEvents() {
				if isReady(event.GetObject()) {
					first(ready, event.GetObject().GetMetadata().GetUid())
				}
			}
		}
		return nil
	})
	g.Go(func() error {
		for len(there) < services*each {
			batch, err := parts.Recv()
			if err != nil {
				return fmt.Errorf("%d endpoints are ready: %w", len(there), err)
			}
			for _, event := range batch.GetEvents() {
				noteReady(there, event.GetObject())
			}
		}
		return nil
	})
	for i := range services {
		name := fmt.Sprint(prefix, "-", i)
		labels := map[string]string{prefix: name}
		_, err := c.Services.Create(ctx, &corev1rpc.CreateServiceRequest{Namespace: "default", Object: &corev1.Service{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}, // as its slices then are
			Spec: &corev1.ServiceSpec{Selector: labels, ClusterIP: "None", IpFamilies: []string{"IPv4"},
				Ports: []*corev1.ServicePort{{Port: 80, Protocol: "TCP", TargetPort: &metav1.IntOrString{IntVal: 80}}}},
		}})
		if err != nil {
			return err
		}
		for j := range each {
			_, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
				Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(name, "-", j), Labels: labels},
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
			}})
			if err != nil {
				return err
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var took []time.Duration
	for uid, at := range ready {
		took = append(took, max(there[uid].Sub(at), 0))
	}
	slices.Sort(took)
	after, err := s.cpu()
	if err != nil {
		return err
	}
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	note(fmt.Sprintf("pod Ready to its endpoint, %d services of %d pods", services, each), timing{took: p50,
		cpu: after - used, text: fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", p50.Seconds()*1000, p99.Seconds()*1000)})
	return nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.GetStatus().GetConditions(), func(c *corev1.PodCondition) bool {
		return c.GetType() == "Ready" && c.GetStatus() == "True"
	})
}

// noteReady notes when the endpoints of a slice were first seen ready.
func noteReady(there map[string]time.Time, s *discoveryv1.EndpointSlice) {
	for _, e := range s.GetEndpoints() {
		if e.GetConditions().GetReady() {
			first(there, e.GetTargetRef().GetUid())
		}
	}
}

// first notes the time, once for each uid.
func first(times map[string]time.Time, uid string) {
	if _, ok := times[uid]; !ok {
		times[uid] = time.Now()
	}
}
