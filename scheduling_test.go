package monoplane_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler/configfile"
	"monoplane.dev/scheduler/framework"
)

// lastNode is a plugin that likes one node.
type lastNode struct{ name string }

func (lastNode) Name() string { return "LastNode" }

func (p lastNode) Score(_ *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) int64 {
	if node.Name == p.name {
		return framework.MaxScore
	}
	return 0
}

// A cluster inside a program, whose scheduler has a plugin of the program's own.
func ExampleSchedulerConfig() {
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
				"LastNode": func(args *configfile.Args, _ *client.Client) (framework.Plugin, error) {
					var a struct {
						Node string `json:"node"`
					}
					if err := args.Decode(&a); err != nil {
						return nil, err
					}
					if a.Node == "" {
						return nil, errors.New("args.node: must not be empty")
					}
					return lastNode{a.Node}, nil
				},
			},
			Text: []byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    score:
      enabled:
      - {name: LastNode, weight: 100}
  pluginConfig:
  - name: LastNode
    args: {node: node-3}
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
	p, err := pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "hello"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "busybox"}}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	w, err := pods.Watch(ctx, &metav1.WatchRequest{
		Namespace: "default", FieldSelector: "metadata.name=hello", ResourceVersion: p.GetMetadata().GetResourceVersion(),
	})
	if err != nil {
		log.Fatal(err)
	}
	for p.GetSpec().GetNodeName() == "" {
		batch, err := w.Recv()
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range batch.GetEvents() {
			p = e.GetObject()
		}
	}
	fmt.Println(p.GetSpec().GetNodeName())
	// Output: node-3
}

// A faulty configuration ends the start with all its faults, and nothing has been made on the disk.
// spec: SCHED-1
func TestFaultySchedulerConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "scheduler.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 0\nprofile: []\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		cfg  monoplane.SchedulerConfig
		want []string
	}{
		{monoplane.SchedulerConfig{File: file}, []string{file + ":3: parallelism: is 0", file +
			":4: profile: unknown field"}},
		{monoplane.SchedulerConfig{Text: []byte{}}, []string{"scheduler configuration:1: is empty"}},
		{monoplane.SchedulerConfig{File: file + ".gone"}, []string{file + ".gone"}},
	} {
		data := filepath.Join(dir, "data")
		c, err := monoplane.Start(t.Context(), monoplane.Config{DataDir: data, Runtime: monoplane.FakeRuntime(),
			Scheduler: tc.cfg})
		if err == nil {
			t.Fatal("started", c.Stop(t.Context()))
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want %s", err, w)
			}
		}
		if _, err := os.Stat(data); !os.IsNotExist(err) {
			t.Errorf("there is a data directory: %v", err)
		}
	}
}
