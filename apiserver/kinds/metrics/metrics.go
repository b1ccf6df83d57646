// Package metrics serves metrics.k8s.io: what nodes and pods use, as kubectl top shows it. Nothing is stored or
// collected: who asks makes the server ask the agents of the nodes concerned, all at once, each for a few seconds.
//
// What an agent does not say, because its node is gone or has no agent that measures, is missing in a list, and
// NotFound alone.
package metrics

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	metricsv1beta1 "monoplane.dev/api/metrics/v1beta1"
	metricsv1beta1rpc "monoplane.dev/api/metrics/v1beta1/rpc"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// NodeMetrics describes the kind.
func NodeMetrics(c define.Config) define.Definition {
	return define.Definition{Server: func(_ object.Backend, backendOf func(*object.Kind) object.Backend) any {
		return &nodes{objects: backendOf(corev1.NodeKind), asker: asker{c.Usage}}
	}}
}

// PodMetrics describes the kind.
func PodMetrics(c define.Config) define.Definition {
	return define.Definition{Server: func(_ object.Backend, backendOf func(*object.Kind) object.Backend) any {
		return &pods{objects: backendOf(corev1.PodKind), asker: asker{c.Usage}}
	}}
}

// asker asks agents.
type asker struct{ source define.UsageSource }

const (
	// patience is how long an agent may take.
	patience = 5 * time.Second
	// atOnce bounds how many agents are asked at the same time for one request.
	atOnce = 64
)

// ask returns the reports of the nodes that answer, by name.
func (a asker) ask(ctx context.Context, names map[string]bool) map[string]*nodev1rpc.UsageReport {
	out := make(map[string]*nodev1rpc.UsageReport, len(names))
	if a.source == nil {
		return out
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(atOnce)
	for name := range names {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			report, err := a.source.Usage(ctx, name)
			if err != nil {
				return nil // it is missing in the answer
			}
			mu.Lock()
			defer mu.Unlock()
			out[name] = report
			return nil
		})
	}
	_ = g.Wait() // it has no errors
	return out
}

// may refuses agents: each knows what its own pods use, and has no business with others.
func may(ctx context.Context, resource string) error {
	id := auth.From(ctx)
	if id.Class != auth.Node {
		return nil
	}
	return auth.Denied(id, auth.Attributes{Verb: "get", Group: "metrics.k8s.io", Resource: resource}, "")
}

func usage(u *nodev1rpc.Usage) map[string]*metav1.Quantity {
	return map[string]*metav1.Quantity{
		"cpu":    value.NewQuantity(*resource.NewScaledQuantity(u.GetNanoCores(), resource.Nano)),
		"memory": value.NewQuantity(*resource.NewQuantity(u.GetMemory()/1024*1024, resource.BinarySI)),
	}
}

// metadata returns what names an object and tells what it is like.
func metadata(o object.Object) *metav1.ObjectMeta {
	m := o.GetMetadata()
	return &metav1.ObjectMeta{
		Name: m.GetName(), Namespace: m.GetNamespace(), Labels: m.GetLabels(), CreationTimestamp: m.GetCreationTimestamp(),
	}
}

type nodes struct {
	metricsv1beta1rpc.UnimplementedNodesServer
	asker
	objects object.Backend
}

// Get serves Nodes.Get.
func (s *nodes) Get(ctx context.Context, req *metav1.GetRequest) (*metricsv1beta1.NodeMetrics, error) {
	if err := may(ctx, "nodes"); err != nil {
		return nil, err
	}
	o, err := s.objects.Get(ctx, &metav1.GetRequest{Name: req.GetName()})
	if err != nil {
		return nil, err
	}
	out := of(o, s.ask(ctx, map[string]bool{req.GetName(): true})[req.GetName()])
	if out == nil {
		return nil, apierrors.NewNotFound(metricsv1beta1.NodeMetricsKind, req.GetName())
	}
	return out, nil
}

// List serves Nodes.List.
func (s *nodes) List(ctx context.Context, req *metav1.ListRequest) (*metricsv1beta1.NodeMetricsList, error) {
	if err := may(ctx, "nodes"); err != nil {
		return nil, err
	}
	list, err := s.objects.List(ctx, &metav1.ListRequest{
		LabelSelector: req.GetLabelSelector(), FieldSelector: req.GetFieldSelector(),
	})
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(list.Objects))
	for _, o := range list.Objects {
		names[o.GetMetadata().GetName()] = true
	}
	reports := s.ask(ctx, names)
	out := &metricsv1beta1.NodeMetricsList{Metadata: &metav1.ListMeta{}}
	for _, o := range list.Objects {
		if m := of(o, reports[o.GetMetadata().GetName()]); m != nil {
			out.Items = append(out.Items, m)
		}
	}
	return out, nil
}

// of returns what a node uses, nil without a report.
func of(node object.Object, r *nodev1rpc.UsageReport) *metricsv1beta1.NodeMetrics {
	if r == nil {
		return nil
	}
	return &metricsv1beta1.NodeMetrics{
		Metadata: metadata(node), Timestamp: value.Time(time.Unix(0, r.GetTime())),
		Window: &metav1.Duration{Duration: r.GetWindow()}, Usage: usage(r.GetNode()),
	}
}

type pods struct {
	metricsv1beta1rpc.UnimplementedPodsServer
	asker
	objects object.Backend
}

// Get serves Pods.Get.
func (s *pods) Get(ctx context.Context, req *metav1.GetRequest) (*metricsv1beta1.PodMetrics, error) {
	if err := may(ctx, "pods"); err != nil {
		return nil, err
	}
	o, err := s.objects.Get(ctx, &metav1.GetRequest{Namespace: req.GetNamespace(), Name: req.GetName()})
	if err != nil {
		return nil, err
	}
	if out := s.measured(ctx, []object.Object{o}); len(out) > 0 {
		return out[0], nil
	}
	return nil, apierrors.NewNotFound(metricsv1beta1.PodMetricsKind, req.GetName())
}

// List serves Pods.List.
func (s *pods) List(ctx context.Context, req *metav1.ListRequest) (*metricsv1beta1.PodMetricsList, error) {
	if err := may(ctx, "pods"); err != nil {
		return nil, err
	}
	list, err := s.objects.List(ctx, &metav1.ListRequest{
		Namespace: req.GetNamespace(), LabelSelector: req.GetLabelSelector(), FieldSelector: req.GetFieldSelector(),
	})
	if err != nil {
		return nil, err
	}
	return &metricsv1beta1.PodMetricsList{Metadata: &metav1.ListMeta{}, Items: s.measured(ctx, list.Objects)}, nil
}

// measured returns what those of the pods use of which something runs.
func (s *pods) measured(ctx context.Context, all []object.Object) []*metricsv1beta1.PodMetrics {
	names := make(map[string]bool)
	for _, o := range all {
		if node := o.(*corev1.Pod).GetSpec().GetNodeName(); node != "" {
			names[node] = true
		}
	}
	type key struct{ node, namespace, name string }
	used := make(map[key]*nodev1rpc.PodUsage)
	reports := s.ask(ctx, names)
	for node, r := range reports {
		for _, p := range r.GetPods() {
			used[key{node, p.GetNamespace(), p.GetName()}] = p
		}
	}
	var out []*metricsv1beta1.PodMetrics
	for _, o := range all {
		m, node := o.GetMetadata(), o.(*corev1.Pod).GetSpec().GetNodeName()
		u := used[key{node, m.GetNamespace(), m.GetName()}]
		if u == nil {
			continue
		}
		p := &metricsv1beta1.PodMetrics{
			Metadata: metadata(o), Timestamp: value.Time(time.Unix(0, reports[node].GetTime())),
			Window: &metav1.Duration{Duration: reports[node].GetWindow()},
		}
		for _, c := range u.GetContainers() {
			p.Containers = append(p.Containers,
				&metricsv1beta1.ContainerMetrics{Name: c.GetName(), Usage: usage(c.GetUsage())})
		}
		out = append(out, p)
	}
	return out
}
