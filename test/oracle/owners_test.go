package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	ourmeta "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/garbagecollector"
	"monoplane.dev/object"
)

// family is an object with its owners, by their places among the objects made before.
type family struct {
	kind, namespace, name string
	owners                []parent
}

type parent struct {
	// of is the object whose uid is meant, -1 for one that there never was.
	of         int
	apiVersion string
	kind, name string
	blocks     bool
}

func (f family) String() string { return f.kind + " " + f.namespace + "/" + f.name }

// The collector leaves what Kubernetes' own leaves, with the same references, of whatever objects name whatever
// owners: some there, some not, of another uid, kind or namespace, or of a kind that nobody serves. spec: OBJ-12
func TestGarbageCollector(t *testing.T) {
	rng, n := random(t), max(*count/200, 2)
	collected := 0
	for range n {
		families := randomFamilies(rng, 40)
		ours := collectOurs(t, families)
		theirs := collectTheirs(t, families, ours)
		if !maps.Equal(ours, theirs) {
			var lines []string
			for _, f := range families {
				if a, b := ours[f.String()], theirs[f.String()]; a != b {
					lines = append(lines, fmt.Sprintf("%s with %+v: we leave %q, Kubernetes %q", f, f.owners, a, b))
				}
			}
			t.Fatal(strings.Join(lines, "\n"))
		}
		collected += len(families) - len(ours)
	}
	if collected < 5*n {
		t.Errorf("only %d objects of %d graphs were collected", collected, n)
	}
}

func randomFamilies(rng *rand.Rand, n int) []family {
	var all []family
	for i := range n {
		f := family{kind: []string{"ConfigMap", "ConfigMap", "Secret", "Node"}[rng.IntN(4)], name: fmt.Sprint("o", i)}
		if f.kind != "Node" {
			f.namespace = []string{"ns", "ns", "ns", "other"}[rng.IntN(4)]
		}
		for range rng.IntN(3) {
			p := parent{of: -1, apiVersion: "v1", kind: "ConfigMap", name: "never", blocks: rng.IntN(2) == 0}
			if len(all) > 0 && rng.IntN(4) > 0 {
				p.of = len(all) - 1 - rng.IntN(min(15, len(all)))
				p.kind, p.name = all[p.of].kind, all[p.of].name
			}
			switch rng.IntN(25) {
			case 0:
				p.kind = "Secret"
			case 1:
				p.name = "another"
			case 2:
				p.apiVersion, p.kind = "example.com/v1", "Widget"
			}
			if !slices.ContainsFunc(f.owners, func(x parent) bool { return x.of == p.of }) {
				f.owners = append(f.owners, p)
			}
		}
		all = append(all, f)
	}
	return all
}

// left describes what is left of an object.
func left(owners []string) string { return "left with " + strings.Join(owners, ", ") }

// collectOurs returns what our collector leaves, by what it is called.
func collectOurs(t *testing.T, families []family) map[string]string {
	t.Helper()
	found := map[string]string{}
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		server.Namespaces(t, "ns", "other")
		c := server.Admin()
		uids := make([]string, len(families))
		ctx := context.Background()
		for i, f := range families {
			m := &ourmeta.ObjectMeta{Namespace: f.namespace, Name: f.name}
			for _, p := range f.owners {
				uid := "never"
				if p.of >= 0 {
					uid = uids[p.of]
				}
				m.OwnerReferences = append(m.OwnerReferences, &ourmeta.OwnerReference{ApiVersion: p.apiVersion, Kind: p.kind,
					Name: p.name, Uid: uid, BlockOwnerDeletion: &p.blocks})
			}
			var o object.Object
			var err error
			switch f.kind {
			case "ConfigMap":
				o, err = c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{Metadata: m}})
			case "Secret":
				o, err = c.Secrets.Create(ctx, &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{Metadata: m}})
			default:
				o, err = c.Nodes.Create(ctx, &corev1rpc.CreateNodeRequest{Object: &corev1.Node{Metadata: m}})
			}
			if err != nil {
				t.Fatal(err)
			}
			uids[i] = o.GetMetadata().GetUid()
		}
		gc, err := garbagecollector.New(garbagecollector.Config{Client: server.Controller("garbage-collector")})
		if err != nil {
			t.Fatal(err)
		}
		running, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- gc.Run(running) }()
		time.Sleep(time.Hour) // virtual
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		add := func(kind string, o object.Object) {
			m := o.GetMetadata()
			var owners []string
			for _, r := range m.GetOwnerReferences() {
				owners = append(owners, r.GetKind()+" "+r.GetName())
			}
			found[family{kind: kind, namespace: m.GetNamespace(), name: m.GetName()}.String()] = left(owners)
		}
		maps, err1 := c.ConfigMaps.List(ctx, &ourmeta.ListRequest{})
		secrets, err2 := c.Secrets.List(ctx, &ourmeta.ListRequest{})
		nodes, err3 := c.Nodes.List(ctx, &ourmeta.ListRequest{})
		if err := cmp.Or(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		for _, o := range maps.GetItems() {
			add("ConfigMap", o)
		}
		for _, o := range secrets.GetItems() {
			add("Secret", o)
		}
		for _, o := range nodes.GetItems() {
			add("Node", o)
		}
	})
	return found
}

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

// collectTheirs returns what Kubernetes' collector leaves: what it has left when that is what is expected, or after a
// minute.
func collectTheirs(t *testing.T, families []family, want map[string]string) map[string]string {
	t.Helper()
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
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: f.kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.name, UID: uid(i)}}
		for _, p := range f.owners {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: p.apiVersion, Kind: p.kind,
				Name: p.name, UID: uid(p.of), BlockOwnerDeletion: &p.blocks})
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

	var found map[string]string
	look := func(ctx context.Context) (bool, error) {
		found = map[string]string{}
		for kind, r := range monitored {
			l, err := client.Resource(r).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, o := range l.Items {
				var owners []string
				for _, r := range o.OwnerReferences {
					owners = append(owners, r.Kind+" "+r.Name)
				}
				found[family{kind: kind, namespace: o.Namespace, name: o.Name}.String()] = left(owners)
			}
		}
		return maps.Equal(found, want), nil
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, look)
	if err != nil && !wait.Interrupted(err) {
		t.Fatal(err)
	}
	return found
}
