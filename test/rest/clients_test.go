package rest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"monoplane.dev/api/services"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "host"}}},
	}
}

// spec: OBJ-15, OBJ-7
func TestTypedClient(t *testing.T) {
	s := newServer(t)
	for _, contentType := range []string{"application/json", runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			config := rest.CopyConfig(s.config)
			config.ContentType = contentType
			config.AcceptContentTypes = contentType + ",application/json"
			pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("default")
			ctx := t.Context()
			created, err := pods.Create(ctx, pod("a"), metav1.CreateOptions{FieldManager: "test"})
			if err != nil || created.UID == "" || created.Spec.Containers[0].Image != "host" {
				t.Fatalf("create: %v, %v", created, err)
			}
			w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if _, err := pods.Create(ctx, pod("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("create again: %v", err)
			}
			created.Labels["x"] = "y"
			updated, err := pods.Update(ctx, created, metav1.UpdateOptions{})
			if err != nil || updated.Labels["x"] != "y" {
				t.Errorf("update: %v, %v", updated, err)
			}
			if _, err := pods.Update(ctx, created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("stale update: %v", err)
			}
			patched, err := pods.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":null}}}`),
				metav1.PatchOptions{})
			if _, ok := patched.Labels["x"]; err != nil || ok {
				t.Errorf("patch: %v, %v", patched, err)
			}
			patched.Status.Phase = corev1.PodRunning
			if got, err := pods.UpdateStatus(ctx, patched, metav1.UpdateOptions{}); err != nil ||
				got.Status.Phase != corev1.PodRunning {
				t.Errorf("status: %v, %v", got, err)
			}
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=a", Limit: 10})
			if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" || list.ResourceVersion == "" {
				t.Errorf("list: %v, %v", list, err)
			}
			zero := int64(0)
			if err := pods.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &zero,
				Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
				t.Errorf("delete with another uid: %v", err)
			}
			if err := pods.Delete(ctx, "a", *metav1.NewPreconditionDeleteOptions(string(created.UID))); err != nil {
				t.Errorf("delete: %v", err)
			}
			_ = pods.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &zero})
			if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get after delete: %v", err)
			}
			var seen []watch.EventType
			for e := range w.ResultChan() {
				p, ok := e.Object.(*corev1.Pod)
				if !ok || p.Name != "a" {
					t.Fatalf("event %v", e)
				}
				if seen = append(seen, e.Type); e.Type == watch.Deleted {
					break
				}
			}
			if len(seen) < 4 || seen[0] != watch.Modified {
				t.Errorf("events %v", seen)
			}
			if _, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: "!!"}); !apierrors.IsBadRequest(err) {
				t.Errorf("bad selector: %v", err)
			}
		})
	}
}

// spec: OBJ-7
func TestInformers(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) { testInformers(t, contentType) })
	}
}

func testInformers(t *testing.T, contentType string) {
	s := newServer(t)
	config := rest.CopyConfig(s.config)
	config.ContentType = contentType
	config.AcceptContentTypes = contentType // nothing else will do
	client := kubernetes.NewForConfigOrDie(config)
	ctx := t.Context()
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	events := make(chan string, 10)
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { events <- "add " + o.(*corev1.Pod).Name },
		DeleteFunc: func(o any) { events <- "delete" },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	wait, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if !cache.WaitForCacheSync(wait.Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if got != want {
				t.Errorf("event %q, want %q", got, want)
			}
		case <-wait.Done():
			t.Fatalf("no event %q", want)
		}
	}
	expect("add before")
	s.api.Expire()
	s.api.Cut()
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod("after"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("add after")
	zero := int64(0)
	if err := client.CoreV1().Pods("default").Delete(ctx, "before",
		metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	expect("delete")
}

// A client that prefers CBOR is refused in the way in which it takes JSON from then on, and gets its answers in JSON.
//
// spec: OBJ-15
func TestCBORIsRefused(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.ClientsAllowCBOR, true)
	featurestesting.SetFeatureDuringTest(t, features.ClientsPreferCBOR, true)
	s := newServer(t)
	ctx := t.Context()
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	maps := dynamic.NewForConfigOrDie(s.config).Resource(gvr).Namespace("default")
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m"},
	}}
	_, err := maps.Create(ctx, o, metav1.CreateOptions{})
	const refusal = "the body of the request was in an unknown format - accepted media types include: " +
		"application/json, application/yaml, application/vnd.kubernetes.protobuf"
	if !apierrors.IsUnsupportedMediaType(err) || err.Error() != refusal {
		t.Errorf("in CBOR: %v", err)
	}
	if got, err := maps.Create(ctx, o, metav1.CreateOptions{}); err != nil || got.GetName() != "m" {
		t.Errorf("again: %v, %v", got, err)
	}
	if list, err := maps.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
		t.Errorf("list: %v, %v", list, err)
	}
	config := rest.CopyConfig(s.config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeCBOR
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Get().Resource("nodes").SetHeader("Accept", runtime.ContentTypeCBOR).Do(ctx).Error()
	if !apierrors.IsNotAcceptable(err) || err.Error() != "only the following media types are accepted: "+
		"application/json, application/yaml, application/vnd.kubernetes.protobuf" {
		t.Errorf("an answer in CBOR alone: %v", err)
	}
}

// spec: OBJ-15
func TestDynamicAndMetadataClients(t *testing.T) {
	s := newServer(t)
	ctx := t.Context()
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	maps := dynamic.NewForConfigOrDie(s.config).Resource(gvr).Namespace("default")
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m"}, "data": map[string]any{"a": "b"},
	}}
	if got, err := maps.Create(ctx, o, metav1.CreateOptions{}); err != nil || got.GetKind() != "ConfigMap" ||
		got.GetUID() == "" {
		t.Fatalf("create: %v, %v", got, err)
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "ConfigMapList" || list.Items[0].GetKind() != "ConfigMap" {
		t.Errorf("list: %v, %v", list, err)
	}
	client := metadata.NewForConfigOrDie(s.config).Resource(gvr).Namespace("default")
	got, err := client.Get(ctx, "m", metav1.GetOptions{})
	if err != nil || got.Name != "m" {
		t.Errorf("metadata: %v, %v", got, err)
	}
	metas, err := client.List(ctx, metav1.ListOptions{})
	if err != nil || len(metas.Items) != 1 || metas.Items[0].Name != "m" {
		t.Errorf("metadata list: %v, %v", metas, err)
	}
	w, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*metav1.PartialObjectMetadata).Name != "m" {
		t.Errorf("metadata watch: %v", e)
	}
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("delete collection: %v", err)
	}
}

// spec: CLI-2
func TestDiscoveryClient(t *testing.T) {
	s := newServer(t)
	served, groupsServed := map[string]bool{}, map[string]bool{}
	for _, svc := range services.All() {
		served[svc.Kind.APIVersion()], groupsServed[svc.Kind.Group] = true, true
	}
	for _, legacy := range []bool{false, true} {
		c := discovery.NewDiscoveryClientForConfigOrDie(s.config)
		c.UseLegacyDiscovery = legacy
		groups, resources, err := c.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		if len(groups) != len(groupsServed) {
			t.Errorf("legacy %v: %d groups", legacy, len(groups))
		}
		i := slices.IndexFunc(resources, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "v1" })
		j := slices.IndexFunc(resources[i].APIResources, func(r metav1.APIResource) bool { return r.Name == "pods" })
		r := resources[i].APIResources[j]
		if r.Kind != "Pod" || !r.Namespaced || r.SingularName != "pod" || !slices.Contains(r.ShortNames, "po") ||
			len(r.Verbs) != 8 {
			t.Errorf("legacy %v: pods %+v", legacy, r)
		}
		v, err := c.ServerVersion()
		if err != nil || v.Major != "1" || v.GitVersion != "v1.36.3+monoplane" {
			t.Errorf("version %v, %v", v, err)
		}
		gvs, err := openapi3.NewRoot(c.OpenAPIV3()).GroupVersions()
		if err != nil || len(gvs) != len(served) {
			t.Errorf("OpenAPI %v, %v", gvs, err)
		}
		if _, err := openapi3.NewRoot(c.OpenAPIV3()).GVSpec(corev1.SchemeGroupVersion); err != nil {
			t.Errorf("OpenAPI of v1: %v", err)
		}
	}
}

func TestErrorsOnTheClient(t *testing.T) {
	s := newServer(t)
	client := kubernetes.NewForConfigOrDie(s.config)
	_, err := client.AppsV1beta1().Deployments("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("unknown resource: %v", err)
	}
	var st apierrors.APIStatus
	if !errors.As(err, &st) || st.Status().Code != 404 {
		t.Errorf("status %v", st)
	}
	big := pod("big")
	big.Annotations = map[string]string{"x": string(make([]byte, 4<<20))}
	if _, err = client.CoreV1().Pods("default").Create(t.Context(), big,
		metav1.CreateOptions{}); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("large body: %v", err)
	}
}
