package garbagecollector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/client/generic"
	"monoplane.dev/controllers/garbagecollector"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a collector on a server in a bubble of virtual time.
type world struct {
	*testing.T
	server   *apitest.Server
	c        *client.Client
	kinds    map[string]*generic.Client
	registry *prometheus.Registry
	warnings bytes.Buffer // What collectors log that is no news of their work. Read it when they have stopped.
	logger   *slog.Logger // It writes warnings, one at a time.
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start()()
		f(w)
	})
}

// newWorld is a server with two namespaces and no collector.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, server: apitest.Start(t), kinds: map[string]*generic.Client{}, registry: prometheus.NewRegistry()}
	w.c = w.server.Admin()
	w.logger = slog.New(slog.NewTextHandler(&w.warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, s := range services.All() {
		if s.Stores() {
			k, err := generic.New(s, w.c.Conn())
			w.must(err)
			w.kinds[s.Kind.Kind] = k
		}
	}
	w.server.Namespaces(t, "ns", "other")
	return w
}

// start runs a collector, which works when it returns.
func (w *world) start() (stop func()) {
	w.Helper()
	return w.startWith(true)
}

func (w *world) startWith(ready bool) (stop func()) {
	w.Helper()
	w.registry = prometheus.NewRegistry()
	c, err := garbagecollector.New(garbagecollector.Config{
		Client: w.server.Controller("garbage-collector"), Registerer: w.registry,
		Logger: w.logger,
	})
	w.must(err)
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	if ready {
		synctest.Wait()
		w.must(c.Ready())
	}
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("Run ended with %v", err)
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// settle lets the collector do what it has to do, back-offs included.
func (w *world) settle() {
	time.Sleep(time.Minute) // virtual
	synctest.Wait()
}

// ref is a reference to o; words "block" and "controller" say more.
func ref(o object.Object, words ...string) *metav1.OwnerReference {
	apiVersion, kind := o.TypeMeta()
	r := &metav1.OwnerReference{ApiVersion: apiVersion, Kind: kind, Name: o.GetMetadata().GetName(),
		Uid: o.GetMetadata().GetUid()}
	yes := true
	if slices.Contains(words, "block") {
		r.BlockOwnerDeletion = &yes
	}
	if slices.Contains(words, "controller") {
		r.Controller = &yes
	}
	return r
}

func split(name string) (namespace, rest string) {
	if ns, n, ok := strings.Cut(name, "/"); ok {
		return ns, n
	}
	return "ns", name
}

// configMap makes one, named "name" in ns or "namespace/name".
func (w *world) configMap(name string, owners ...*metav1.OwnerReference) *corev1.ConfigMap {
	w.Helper()
	ns, name := split(name)
	o, err := w.c.ConfigMaps.Create(context.Background(), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: ns, Name: name, OwnerReferences: owners}}})
	w.must(err)
	return o
}

func (w *world) pod(name, node string, owners ...*metav1.OwnerReference) *corev1.Pod {
	w.Helper()
	o, err := w.c.Pods.Create(context.Background(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners},
		Spec:     &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{Name: "c", Image: "host"}}}}})
	w.must(err)
	return o
}

func (w *world) node(name string) *corev1.Node {
	w.Helper()
	o, err := w.c.Nodes.Create(context.Background(), &corev1rpc.CreateNodeRequest{
		Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}})
	w.must(err)
	return o
}

// get returns the metadata of an object as it is now, nil when there is none.
func (w *world) get(o object.Object) *metav1.ObjectMeta {
	w.Helper()
	_, kind := o.TypeMeta()
	now, err := w.kinds[kind].Get(context.Background(), o.GetMetadata().GetNamespace(), o.GetMetadata().GetName())
	if apierrors.Is(err, apierrors.NotFound) || err == nil && now.GetMetadata().GetUid() != o.GetMetadata().GetUid() {
		return nil
	}
	w.must(err)
	return now.GetMetadata()
}

func (w *world) remove(o object.Object, policy string) {
	w.Helper()
	opts := &metav1.DeleteOptions{}
	if policy != "" {
		opts.PropagationPolicy = &policy
	}
	_, kind := o.TypeMeta()
	w.must(w.kinds[kind].Delete(context.Background(), o.GetMetadata().GetNamespace(), o.GetMetadata().GetName(), opts))
}

// patch merges metadata into that of an object.
func (w *world) patch(o object.Object, metadata string) {
	w.Helper()
	_, kind := o.TypeMeta()
	_, err := w.kinds[kind].Patch(context.Background(), &metav1.PatchRequest{
		Namespace: o.GetMetadata().GetNamespace(), Name: o.GetMetadata().GetName(),
		PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":` + metadata + `}`)})
	w.must(err)
}

func (w *world) gone(all ...object.Object) {
	w.Helper()
	for _, o := range all {
		if m := w.get(o); m != nil {
			w.Errorf("%s is still there: %v", o.GetMetadata().GetName(), m)
		}
	}
}

// alive expects objects that are not being deleted.
func (w *world) alive(all ...object.Object) {
	w.Helper()
	for _, o := range all {
		if m := w.get(o); m == nil || m.DeletionTimestamp != nil {
			w.Errorf("%s is deleted: %v", o.GetMetadata().GetName(), m)
		}
	}
}

// waits expects an object that is being deleted and is held by finalizers.
func (w *world) waits(o object.Object, finalizers ...string) {
	w.Helper()
	m := w.get(o)
	if m.GetDeletionTimestamp() == nil || !slices.Equal(m.GetFinalizers(), finalizers) {
		w.Errorf("%s: %v, want it to wait with %v", o.GetMetadata().GetName(), m, finalizers)
	}
}

// owners expects references, by name.
func (w *world) owners(o object.Object, names ...string) {
	w.Helper()
	var got []string
	for _, r := range w.get(o).GetOwnerReferences() {
		got = append(got, r.GetName())
	}
	if !slices.Equal(got, names) {
		w.Errorf("%s has the owners %v, want %v", o.GetMetadata().GetName(), got, names)
	}
}

// eventsOf returns the events about an object, "TYPE REASON: NOTE".
func (w *world) eventsOf(uid string) []string {
	w.Helper()
	l, err := w.c.Events.List(context.Background(), &metav1.ListRequest{
		FieldSelector: "involvedObject.uid=" + uid})
	w.must(err)
	var out []string
	for _, e := range l.GetItems() {
		out = append(out, fmt.Sprintf("%s %s: %s", e.GetType(), e.GetReason(), e.GetMessage()))
	}
	return out
}

// dangling makes dependents of owners that are not there.
func (w *world) dangling(name string) []object.Object {
	w.Helper()
	owner := w.configMap(name + "-owner")
	uid, kind, namespace := ref(owner), ref(owner), ref(owner)
	uid.Uid = "another"
	kind.Kind = "Secret"
	none := &metav1.OwnerReference{ApiVersion: "v1", Kind: "Pod", Name: "none", Uid: "none"}
	node := &metav1.OwnerReference{ApiVersion: "v1", Kind: "Node", Name: "none", Uid: "none"}
	return []object.Object{
		w.configMap(name+"-uid", uid), w.configMap(name+"-kind", kind), w.configMap("other/"+name, namespace),
		w.configMap(name+"-none", none, node, uid),
	}
}

// counted returns the sum of a counter.
func (w *world) counted(name string) (sum float64) {
	w.Helper()
	families, err := w.registry.Gather()
	w.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
