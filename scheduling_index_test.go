package monoplane_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler/configfile"
	"monoplane.dev/scheduler/framework"
)

// licences is a plugin that keeps the pods of a licence, which they name by a label, to few nodes: each node in use is
// paid for.
type licences struct{ nodes int }

func (licences) Name() string { return "Licences" }

// PreFilter leaves the nodes that have the licence once there are enough of them. A look at all pods would tell which
// these are; the index knows.
func (l licences) PreFilter(_ *framework.CycleState, pod *framework.PodInfo, s *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	name, ok := pod.Pod.GetMetadata().GetLabels()["licence"]
	if !ok {
		return nil, nil
	}
	used := s.Index(licenceKey{}, newLicenceIndex).(licenceIndex)[name]
	if len(used) < l.nodes {
		return nil, nil
	}
	only := &framework.PreFilterResult{NodeNames: map[string]struct{}{}}
	for node := range used {
		only.NodeNames[node] = struct{}{}
	}
	return only, nil
}

// licenceIndex is how many pods use a licence on a node. The snapshot keeps it up to date: the plugin itself keeps
// nothing.
type licenceIndex map[string]map[string]int

type licenceKey struct{}

func newLicenceIndex() framework.NodeIndex { return licenceIndex{} }

func (x licenceIndex) Added(n *framework.NodeInfo)   { x.count(n.Name, n.Pods(), 1) }
func (x licenceIndex) Removed(n *framework.NodeInfo) { x.count(n.Name, n.Pods(), -1) }

func (x licenceIndex) Changed(was, _ *framework.NodeInfo, went, came []*framework.PodInfo) {
	x.count(was.Name, came, 1)
	x.count(was.Name, went, -1)
}

func (x licenceIndex) count(node string, pods []*framework.PodInfo, by int) {
	for _, p := range pods {
		name, ok := p.Pod.GetMetadata().GetLabels()["licence"]
		if !ok {
			continue
		}
		if x[name] == nil {
			x[name] = map[string]int{}
		}
		if x[name][node] += by; x[name][node] == 0 {
			delete(x[name], node)
		}
	}
}

// A plugin that keeps an index of its own, which the scheduler tells of what changes.
func ExampleSchedulerConfig_index() {
	dir, err := os.MkdirTemp("", "monoplane")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	cluster, err := monoplane.Start(ctx, monoplane.Config{
		DataDir: dir, Runtime: monoplane.FakeRuntime(), Nodes: 5, NodeName: "node",
		Scheduler: monoplane.SchedulerConfig{
			Plugins: configfile.Registry{
				"Licences": func(*configfile.Args, *client.Client) (framework.Plugin, error) {
					return licences{nodes: 2}, nil
				},
			},
			Text: []byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    preFilter:
      enabled:
      - name: Licences
`),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cluster.Stop(ctx) }()
	if err := cluster.WaitReady(ctx); err != nil {
		log.Fatal(err)
	}
	pods := cluster.Client().Pods
	for i := range 10 {
		_, err := pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: fmt.Sprint("cad-", i), Labels: map[string]string{"licence": "cad"}},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "busybox"}}},
		}})
		if err != nil {
			log.Fatal(err)
		}
	}
	w, err := pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", LabelSelector: "licence=cad"})
	if err != nil {
		log.Fatal(err)
	}
	nodes := map[string]string{}
	for len(nodes) < 10 {
		batch, err := w.Recv()
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range batch.GetEvents() {
			if p := e.GetObject(); p.GetSpec().GetNodeName() != "" {
				nodes[p.GetMetadata().GetName()] = p.GetSpec().GetNodeName()
			}
		}
	}
	fmt.Println(len(slices.Compact(slices.Sorted(maps.Values(nodes)))))
	// Output: 2
}
