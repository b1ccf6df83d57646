package histories

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"monoplane.dev"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/test/oracle/upstream"
)

var (
	pods      = core("pods")
	nodes     = core("nodes")
	revisions = apps("controllerrevisions")
)

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

func apps(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
}

// fields are an object as JSON has it, or a part of one.
type fields = map[string]any

// world is a cluster with one set of controllers, in virtual time.
type world struct {
	name    string
	cluster *monoplane.Cluster
	client  dynamic.Interface
	// agent acts as the agent of the node that has none.
	agent dynamic.ResourceInterface

	mu            sync.Mutex
	made, deleted map[string]bool // uids of pods
}

// newWorlds starts a cluster with Monoplane's controllers, and one in which Kubernetes' take the place of those that k
// is about.
func newWorlds(t *testing.T, k kind) []*world {
	t.Helper()
	return []*world{newWorld(t, "Monoplane", k, nil), newWorld(t, "Kubernetes", k, k.controllers)}
}

func newWorld(t *testing.T, name string, k kind, theirs []string) *world {
	t.Helper()
	ctx := t.Context()
	c, err := monoplane.Start(ctx, monoplane.Config{
		DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), Nodes: k.nodes, NodeName: "node",
		UnsafeNoFsync: true, Controllers: upstream.Without(slices.Concat(theirs, k.without)...),
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
	config := reach(t, c)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	asAgent := rest.CopyConfig(config)
	asAgent.Impersonate.UserName = authn.NodePrefix + hand
	agent, err := dynamic.NewForConfig(asAgent)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{name: name, cluster: c, client: client, agent: agent.Resource(pods).Namespace("default"),
		made: map[string]bool{}, deleted: map[string]bool{}}
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
	note := func(v any, gone bool) {
		o, err := meta.Accessor(v)
		if err != nil {
			return // one that went while nobody watched; it was noted before
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.made[string(o.GetUID())] = true
		if gone || o.GetDeletionTimestamp() != nil {
			w.deleted[string(o.GetUID())] = true
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(w.client, 0)
	informer := factory.ForResource(pods).Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(v any) { note(v, false) },
		UpdateFunc: func(_, v any) { note(v, false) },
		DeleteFunc: func(v any) { note(v, true) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	t.Cleanup(func() { stop(); factory.Shutdown() })
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatalf("%s: no pods are told of", w.name)
	}
}

// in reaches a resource, in the namespace where everything happens.
func (w *world) in(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	if resource == nodes {
		return w.client.Resource(resource)
	}
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

func (w *world) create(t *testing.T, resource schema.GroupVersionResource, manifest fields) {
	t.Helper()
	o := (&unstructured.Unstructured{Object: manifest}).DeepCopy()
	if _, err := w.in(resource).Create(t.Context(), o, v1.CreateOptions{}); err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
}

// patch changes an object, if it is there and the change is valid: of one that goes by itself nobody knows in which
// step it is gone, nor what a random one allows.
func (w *world) patch(
	t *testing.T, resource schema.GroupVersionResource, name string, patch any, subresources ...string,
) {
	t.Helper()
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = w.in(resource).Patch(t.Context(), name, types.MergePatchType, body, v1.PatchOptions{}, subresources...)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		t.Fatalf("%s: %v", w.name, err)
	}
}

// remove deletes an object, if it is there.
func (w *world) remove(
	t *testing.T, resource schema.GroupVersionResource, name string, options v1.DeleteOptions,
) {
	t.Helper()
	if err := w.in(resource).Delete(t.Context(), name, options); err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("%s: %v", w.name, err)
	}
}

// active returns the pods that have not ended, in an order that is the same in both worlds as far as they can be told
// apart without the names that somebody made up for them.
func (w *world) active(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list := slices.DeleteFunc(w.list(t, pods), func(p unstructured.Unstructured) bool {
		phase := at(p.Object, "status", "phase")
		return phase == "Failed" || phase == "Succeeded"
	})
	slices.SortFunc(list, func(a, b unstructured.Unstructured) int {
		return strings.Compare(podText(a)+a.GetName(), podText(b)+b.GetName())
	})
	return list
}

// at returns what an object has at a path; nil for nothing.
func at(o fields, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return v
}
