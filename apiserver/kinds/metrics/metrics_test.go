package metrics_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/test/apitest"
)

// reports are what agents say, by node; others do not answer.
type reports map[string]*nodev1rpc.UsageReport

func (r reports) Usage(_ context.Context, node string) (*nodev1rpc.UsageReport, error) {
	if r[node] == nil {
		return nil, apierrors.New(apierrors.ServiceUnavailable, "no agent")
	}
	return r[node], nil
}

func TestMetrics(t *testing.T) {
	const at = 1_700_000_000
	used := func(pods ...string) *nodev1rpc.UsageReport {
		r := &nodev1rpc.UsageReport{Time: at * int64(time.Second), Window: int64(15 * time.Second),
			Node: &nodev1rpc.Usage{NanoCores: 1_500_000_000, Memory: 2 << 30}}
		for _, p := range pods {
			r.Pods = append(r.Pods, &nodev1rpc.PodUsage{Namespace: "default", Name: p, Containers: []*nodev1rpc.ContainerUsage{
				{Name: "c", Usage: &nodev1rpc.Usage{NanoCores: 250_000_000, Memory: 3<<20 + 1}},
			}})
		}
		return r
	}
	// The second node lies about a pod of the first, and the third does not answer.
	agents := reports{"n1": used("a"), "n2": used("a", "b")}
	s := apitest.StartWith(t, apitest.Config{API: apiserver.Config{Usage: agents}})
	api := s.Admin()
	ctx := t.Context()
	for _, name := range []string{"n1", "n2", "n3"} {
		if _, err := s.Agent(name).Nodes.Create(ctx, &corev1rpc.CreateNodeRequest{
			Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, node := range map[string]string{"a": "n1", "b": "n2", "c": "n3", "d": ""} {
		if _, err := api.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec:     &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}

	nodes, err := api.NodeMetrics.List(ctx, &metav1.ListRequest{})
	if err != nil || len(nodes.GetItems()) != 2 {
		t.Fatalf("nodes: %v, %v", nodes, err)
	}
	n := nodes.GetItems()[0]
	if n.GetMetadata().GetName() != "n1" || n.GetMetadata().GetLabels()["of"] != "n1" ||
		n.GetTimestamp().GetSeconds() != at || n.GetWindow().GetDuration() != int64(15*time.Second) ||
		n.GetUsage()["cpu"].GetString_() != "1500m" || n.GetUsage()["memory"].GetString_() != "2Gi" {
		t.Errorf("n1: %v", n)
	}
	if nodes, err = api.NodeMetrics.List(ctx, &metav1.ListRequest{LabelSelector: "of=n2"}); err != nil ||
		len(nodes.GetItems()) != 1 {
		t.Errorf("with a selector: %v, %v", nodes, err)
	}

	var names []string
	pods, err := api.PodMetrics.List(ctx, &metav1.ListRequest{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.GetItems() {
		names = append(names, p.GetMetadata().GetName())
	}
	if got := strings.Join(names, " "); got != "a b" {
		t.Errorf("pods: %s", got)
	}
	p, err := api.PodMetrics.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "a"})
	if err != nil || len(p.GetContainers()) != 1 || p.GetContainers()[0].GetUsage()["cpu"].GetString_() != "250m" ||
		p.GetContainers()[0].GetUsage()["memory"].GetString_() != "3Mi" || p.GetMetadata().GetLabels()["app"] != "a" {
		t.Errorf("a: %v, %v", p, err)
	}
	for name, err := range map[string]error{
		"a pod without a report":  second(api.PodMetrics.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "c"})),
		"a pod that is not bound": second(api.PodMetrics.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "d"})),
		"no pod":                  second(api.PodMetrics.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "e"})),
		"a node without a report": second(api.NodeMetrics.Get(ctx, &metav1.GetRequest{Name: "n3"})),
	} {
		if !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = s.Agent("n1").PodMetrics.List(ctx, &metav1.ListRequest{FieldSelector: "spec.nodeName=n1"})
	if !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("an agent: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
