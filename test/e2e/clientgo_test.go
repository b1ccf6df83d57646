package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"k": value},
	}
}

// The whole life of a real pod through typed clients, in both encodings.
// spec: OBJ-1, OBJ-2, OBJ-3, OBJ-5, OBJ-7, OBJ-9, DEL-5, LIFE-3
func TestTypedClients(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			config := rest.CopyConfig(c.config(t))
			config.ContentType = contentType
			config.AcceptContentTypes = contentType + ",application/json"
			p := pods{kubernetes.NewForConfigOrDie(config).CoreV1().Pods(c.namespace(t))}

			created := p.create(t, sleeper("a"))
			if created.UID == "" || created.ResourceVersion == "" || created.Generation != 1 || created.Spec.NodeName != "" {
				t.Errorf("created: %+v", created.ObjectMeta)
			}
			events, err := p.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion, AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			if _, err := p.Create(ctx, sleeper("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("create again: %v", err)
			}
			running := p.untilPhase(t, "a", corev1.PodRunning)
			if len(running.Status.Conditions) < 5 || running.Status.StartTime == nil || running.Status.PodIP == "" {
				t.Errorf("status: %+v", running.Status)
			}

			stale := created.DeepCopy()
			stale.Labels["stale"] = "yes"
			if _, err := p.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("stale update: %v", err)
			}
			stale.ResourceVersion = "" // Last write wins, and the status is not the caller's.
			updated, err := p.Update(ctx, onNode(stale, running.Spec.NodeName), metav1.UpdateOptions{})
			if err != nil || updated.Labels["stale"] != "yes" || updated.Status.Phase != corev1.PodRunning {
				t.Errorf("unconditional update: %+v, %v", updated, err)
			}
			patched, err := p.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"stale":null}}}`),
				metav1.PatchOptions{})
			if err != nil || patched.Labels["stale"] != "" {
				t.Errorf("patch: %v, %v", patched, err)
			}
			patched.ResourceVersion = "" // The agent may have written the status meanwhile.
			patched.Spec.Containers[0].Command = []string{"other"}
			if _, err := p.Update(ctx, patched, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) { // spec: OBJ-10
				t.Errorf("change of a command: %v", err)
			}

			err = p.Delete(ctx, "a", *metav1.NewPreconditionDeleteOptions("7a3f1c80-0000-4000-8000-000000000000"))
			if !apierrors.IsConflict(err) {
				t.Errorf("delete with another pod's uid: %v", err)
			}
			if err := p.Delete(ctx, "a", *metav1.NewPreconditionDeleteOptions(string(created.UID))); err != nil {
				t.Errorf("delete: %v", err)
			}
			phases, last := []corev1.PodPhase{}, ""
			for last != string(watch.Deleted) {
				e := next(t, events)
				last = string(e.Type)
				if pod, ok := e.Object.(*corev1.Pod); ok && !slices.Contains(phases, pod.Status.Phase) && pod.Status.Phase != "" {
					phases = append(phases, pod.Status.Phase)
				}
			}
			if want := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodFailed}; !slices.Equal(phases, want) {
				t.Errorf("the watch saw phases %v, want %v", phases, want)
			}
		})
	}
}

// onNode gives a pod what the server has filled in since, so that an update changes nothing else.
func onNode(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeName = node
	return p
}

// next returns a watch's next event.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event")
	}
	return watch.Event{}
}

// spec: OBJ-6
func TestPages(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ctx, maps := t.Context(), c.client(t).CoreV1().ConfigMaps(c.namespace(t))
	eventually(t, "what a namespace is given", func() (bool, string) {
		_, err := maps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	for i := range 5 {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("m%d", i), fmt.Sprint(i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	opts := metav1.ListOptions{Limit: 2, LabelSelector: "value"} // kube-root-ca.crt has none
	for {
		page, err := maps.List(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Items {
			names = append(names, m.Name)
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
		// What changes between two pages does not show in the second.
		name := fmt.Sprintf("m9-%d", len(names))
		if _, err := maps.Create(ctx, configMap(name, "late"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"m0", "m1", "m2", "m3", "m4"}; !slices.Equal(names, want) {
		t.Errorf("pages hold %v, want %v", names, want)
	}
	for selector, want := range map[metav1.ListOptions]int{
		{LabelSelector: "value=3"}: 1, {LabelSelector: "value in (1,2),value!=2"}: 1, {LabelSelector: "!value"}: 1,
		{LabelSelector: "value notin (late)"}: 6, {FieldSelector: "metadata.name=m4"}: 1,
		{FieldSelector: "metadata.name!=m4,metadata.name!=m3"}: 6,
	} {
		list, err := maps.List(ctx, selector)
		if err != nil || len(list.Items) != want {
			t.Errorf("%+v: %d items, %v; want %d", selector, len(list.Items), err, want)
		}
	}
	for _, bad := range []metav1.ListOptions{{Continue: "junk"}, {LabelSelector: "a=b=c"}, {FieldSelector: "data.k=1"},
		{ResourceVersion: "abc"}} {
		if _, err := maps.List(ctx, bad); !apierrors.IsBadRequest(err) {
			t.Errorf("%+v: %v, want BadRequest", bad, err)
		}
	}
}

// By plain HTTP, because client-go tries such a request ten times.
// spec: OBJ-7
func TestRevisionInTheFuture(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for _, query := range []string{
		"?resourceVersion=900000000&resourceVersionMatch=NotOlderThan", "?resourceVersion=900000000",
		"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=900000000",
	} {
		got := send(t, c.http(t), "GET", c.url+"/api/v1/namespaces/default/configmaps"+query, "", "")
		var status metav1.Status
		if err := json.Unmarshal([]byte(got.body), &status); err != nil {
			t.Fatal(err)
		}
		err := apierrors.FromObject(&status)
		if got.code != http.StatusGatewayTimeout || !apierrors.IsTimeout(err) ||
			!apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("%s: %d %s, want 504 with cause ResourceVersionTooLarge", query, got.code, got.body)
		}
	}
}

// spec: OBJ-15, DEL-1
func TestDynamicAndMetadataClients(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ctx, ns := t.Context(), c.namespace(t)
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	dyn, err := dynamic.NewForConfig(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	events, err := meta.Resource(gvr).Namespace(ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(sleeper("d"))
	if err != nil {
		t.Fatal(err)
	}
	object["apiVersion"], object["kind"] = "v1", "Pod"
	delete(object, "status")
	created, err := dyn.Resource(gvr).Namespace(ns).Create(ctx, &unstructured.Unstructured{Object: object},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "running pod", func() (bool, string) {
		got, err := dyn.Resource(gvr).Namespace(ns).Get(ctx, "d", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		phase, _, _ := unstructured.NestedString(got.Object, "status", "phase")
		return phase == "Running", phase
	})
	got, err := meta.Resource(gvr).Namespace(ns).Get(ctx, "d", metav1.GetOptions{})
	if err != nil || got.UID != created.GetUID() || got.Labels["app"] != "d" {
		t.Errorf("metadata: %+v, %v", got, err)
	}
	if err := dyn.Resource(gvr).Namespace(ns).Delete(ctx, "d", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for first := true; ; first = false {
		e := next(t, events)
		m, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok || m.Name != "d" {
			t.Fatalf("event %s with %T", e.Type, e.Object)
		}
		if first && e.Type != watch.Added {
			t.Errorf("first event is %s", e.Type)
		}
		if e.Type == watch.Deleted {
			break
		}
	}
}

// requests notes the URLs that pass through a transport.
type requests struct {
	mu   sync.Mutex
	urls []*url.URL
	next http.RoundTripper
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.urls = append(r.urls, req.URL)
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

// spec: OBJ-7
func TestInformer(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ns := c.namespace(t)
	p := c.pods(t, ns)
	before := p.create(t, sleeper("before"))

	seen := &requests{}
	config := c.config(t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
	factory := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(config), 0,
		informers.WithNamespace(ns))
	informer := factory.Core().V1().Pods().Informer()
	log := make(chan string, 1000)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { log <- "add " + o.(*corev1.Pod).Name },
		UpdateFunc: func(_, o any) { log <- "update " + o.(*corev1.Pod).Name },
		DeleteFunc: func(o any) { log <- "delete " + o.(*corev1.Pod).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(want string) {
		t.Helper()
		limit := time.After(patience)
		for {
			select {
			case got := <-log:
				if got == want {
					return
				}
			case <-limit:
				t.Fatalf("the informer does not tell %q", want)
			}
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("no sync")
	}
	wait("add before")
	p.create(t, sleeper("after"))
	wait("add after")
	wait("update after")
	p.delete(t, "after", -1)
	wait("delete after")
	p.delete(t, before.Name, -1)
	wait("delete before")

	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.urls) != 1 || seen.urls[0].Query().Get("sendInitialEvents") != "true" {
		t.Errorf("the informer made the requests %v, want one WatchList", seen.urls)
	}
}

// A selector turns what stops matching into DELETED.
// spec: OBJ-7
func TestWatchWithSelector(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ctx, maps := t.Context(), c.client(t).CoreV1().ConfigMaps(c.namespace(t))
	w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "value=on"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, value := range []string{"off", "on", "off"} {
		_, err := maps.Create(ctx, configMap("m", value), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = maps.Update(ctx, configMap("m", value), metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if e := next(t, w); e.Type != want {
			t.Errorf("event %s, want %s", e.Type, want)
		}
	}
}
