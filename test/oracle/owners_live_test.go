//go:build kubernetes

package oracle

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	upstreamgc "k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// monitored are the kinds that Kubernetes' collector watches.
var monitored = map[string]schema.GroupVersionResource{
	"ConfigMap": {Version: "v1", Resource: "configmaps"},
	"Secret":    {Version: "v1", Resource: "secrets"},
	"Node":      {Version: "v1", Resource: "nodes"},
}

// metadataOnly are informers of the metadata of every kind; Kubernetes' own take typed ones where there are some.
type metadataOnly struct {
	metadatainformer.SharedInformerFactory
}

func (m metadataOnly) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	return m.SharedInformerFactory.ForResource(r), nil
}

// mapper never changes.
type mapper struct{ *apimeta.DefaultRESTMapper }

func (mapper) Reset() {}

// preferred is all of discovery that the collector asks for.
type preferred struct {
	discovery.ServerResourcesInterface
}

func (preferred) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	l := &metav1.APIResourceList{GroupVersion: "v1"}
	for kind, r := range monitored {
		l.APIResources = append(l.APIResources, metav1.APIResource{Name: r.Resource, Kind: kind, Namespaced: kind != "Node",
			Verbs: metav1.Verbs{"delete", "list", "watch"}})
	}
	return []*metav1.APIResourceList{l}, nil
}

// quietTime is after how long the collector is taken to have done what it does: it retries nothing here.
const quietTime = 5 * time.Second

// collectTheirs returns what Kubernetes' collector leaves: what it has left once it has done nothing for some seconds.
func collectTheirs(t testing.TB, families []family) map[string]string {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	rest := mapper{apimeta.NewDefaultRESTMapper(nil)}
	for kind := range monitored {
		scope := apimeta.RESTScopeNamespace
		if kind == "Node" {
			scope = apimeta.RESTScopeRoot
		}
		rest.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, scope)
	}
	var objects []runtime.Object
	uid := func(i int) types.UID { return types.UID(fmt.Sprint("uid-", i)) }
	for i, f := range families {
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: f.Kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name, UID: uid(i)}}
		for _, p := range f.Owners {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: p.APIVersion, Kind: p.Kind,
				Name: p.Name, UID: uid(p.Of), BlockOwnerDeletion: &p.Blocks})
		}
		objects = append(objects, o)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	kube := fake.NewClientset()
	started := make(chan struct{})
	close(started)
	ctx, cancel := context.WithCancel(context.Background())
	gc, err := upstreamgc.NewGarbageCollector(ctx, kube, client, rest, map[schema.GroupResource]struct{}{},
		metadataOnly{metadatainformer.NewSharedInformerFactory(client, 0)}, started)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{}, 2)
	go func() { gc.Run(ctx, 5, time.Minute); done <- struct{}{} }()
	go func() { gc.Sync(ctx, preferred{}, time.Minute); done <- struct{}{} }()
	defer func() { cancel(); <-done; <-done }()

	look := func() map[string]string {
		found := map[string]string{}
		for kind, r := range monitored {
			l, err := client.Resource(r).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range l.Items {
				var owners []string
				for _, r := range o.OwnerReferences {
					owners = append(owners, r.Kind+" "+r.Name)
				}
				found[family{Kind: kind, Namespace: o.Namespace, Name: o.Name}.String()] = left(owners)
			}
		}
		return found
	}
	found, since := look(), time.Now()
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		if next := look(); !maps.Equal(next, found) {
			found, since = next, time.Now()
		}
		return time.Since(since) > quietTime, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
