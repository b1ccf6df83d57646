// Package histories gives the same history of a workload to Monoplane's controllers and to those of Kubernetes' own
// controller manager, each in a cluster of its own, and compares what both have made of it after every step: the
// workload, what it owns, the pods, and how many pods were made and deleted on the way.
package histories

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"monoplane.dev"
	"monoplane.dev/test/oracle/upstream"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random histories; 0 takes the time")
	count = flag.Int("count", 2, "number of histories of each kind")
	steps = flag.Int("steps", 12, "number of steps of a history")
)

// patience is how long a step may take before it counts as stuck.
const patience = 2 * time.Minute

var (
	pods      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	revisions = apps("controllerrevisions")
)

func apps(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
}

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard()) // Kubernetes' controllers say each time that a cache is behind their writes
	os.Exit(m.Run())
}

func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("run again with -seed=%d", s)
	return rand.New(rand.NewPCG(s, 1))
}

// world is a cluster with one set of controllers.
type world struct {
	name    string
	cluster *monoplane.Cluster
	client  dynamic.Interface

	mu            sync.Mutex
	made, deleted map[string]bool // names of pods, with their uids
}

// newWorlds starts a cluster with Monoplane's controllers, and one in which Kubernetes' take the place of those named.
func newWorlds(t *testing.T, names ...string) []*world {
	t.Helper()
	return []*world{newWorld(t, "Monoplane"), newWorld(t, "Kubernetes", names...)}
}

func newWorld(t *testing.T, name string, theirs ...string) *world {
	t.Helper()
	ctx := t.Context()
	c, err := monoplane.Start(ctx, monoplane.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Runtime: monoplane.FakeRuntime(), Nodes: 4, NodeName: "node",
		UnsafeNoFsync: true, Controllers: upstream.Without(theirs...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("%s: stop: %v", name, err)
		}
	})
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{name: name, cluster: c, client: client, made: map[string]bool{}, deleted: map[string]bool{}}
	if len(theirs) > 0 {
		w.runUpstream(t, config, theirs)
	}
	w.count(t)
	return w
}

func (w *world) runUpstream(t *testing.T, config *rest.Config, names []string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- upstream.Run(ctx, config, names...) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Kubernetes' controllers: %v", err)
		}
	})
}

// count notes each pod that is made and each whose deletion begins.
func (w *world) count(t *testing.T) {
	t.Helper()
	stream, err := w.client.Resource(pods).Namespace("default").Watch(t.Context(), v1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for event := range stream.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			w.mu.Lock()
			w.made[string(o.GetUID())] = true
			if event.Type == "DELETED" || o.GetDeletionTimestamp() != nil {
				w.deleted[string(o.GetUID())] = true
			}
			w.mu.Unlock()
		}
	}()
	t.Cleanup(stream.Stop)
}

func (w *world) in(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	return w.client.Resource(resource).Namespace("default")
}

func (w *world) list(t *testing.T, resource schema.GroupVersionResource) []unstructured.Unstructured {
	t.Helper()
	l, err := w.in(resource).List(t.Context(), v1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	return l.Items
}

func (w *world) create(t *testing.T, resource schema.GroupVersionResource, manifest map[string]any) {
	t.Helper()
	if _, err := w.in(resource).Create(t.Context(), &unstructured.Unstructured{Object: manifest}, v1.CreateOptions{}); err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
}

func (w *world) patch(t *testing.T, resource schema.GroupVersionResource, name string, patch any) {
	t.Helper()
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = w.in(resource).Patch(t.Context(), name, types.MergePatchType, body, v1.PatchOptions{})
	}
	if err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
}

// at returns what an object has at a path; nil for nothing.
func at(o map[string]any, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return v
}

func number(o map[string]any, path ...string) int64 {
	n, _ := at(o, path...).(int64)
	return n
}

func condition(o map[string]any, kind string) string {
	list, _ := at(o, "status", "conditions").([]any)
	for _, c := range list {
		if c, _ := c.(map[string]any); c["type"] == kind {
			return fmt.Sprint(c["status"])
		}
	}
	return ""
}

// tally tells how often each line is there.
func tally(lines []string) string {
	counts := map[string]int{}
	for _, l := range lines {
		counts[l]++
	}
	var out []string
	for _, l := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d x %s", counts[l], l))
	}
	return strings.Join(out, "\n")
}
