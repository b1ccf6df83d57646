package monoplane_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/object"
)

// That the clusters of this package's tests find nothing means something: a change of an object that the store holds
// is found out.
func TestMutationsAreFoundOut(t *testing.T) {
	// In a bubble everybody else can be waited for to stand still: whoever looks for mutations reads the object too.
	synctest.Test(t, func(t *testing.T) {
		var found []string
		c, err := monoplane.Start(t.Context(), monoplane.Config{
			DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), Nodes: -1, UnsafeNoFsync: true,
		}.OnMutation(func(err error) { found = append(found, err.Error()) }))
		if err != nil {
			t.Fatal(err)
		}
		api := c.SharedClient()
		_, err = api.ConfigMaps.Create(t.Context(), &corev1rpc.CreateConfigMapRequest{
			Namespace: "default", Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "victim"},
				Data: map[string]string{"a": "1"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := api.ConfigMaps.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "victim"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		m.Data["a"] = "2"
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if len(found) != 1 || !strings.Contains(found[0], "configmaps default/victim") {
			t.Errorf("found %q", found)
		}
	})
}

// rest makes requests to the REST API as the administrator.
type rest struct {
	t    *testing.T
	url  string
	http *http.Client
}

func newREST(t *testing.T, c *monoplane.Cluster) *rest {
	t.Helper()
	cfg, err := client.LoadConfig(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &rest{t, "https://" + c.Address(), &http.Client{Transport: tr}}
}

// open makes a request, whose answer must be a success.
func (r *rest) open(method, path, contentType, body string) io.ReadCloser {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	res, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(res.Body)
		r.t.Fatalf("%s %s: %s %s", method, path, res.Status, text)
	}
	return res.Body
}

func (r *rest) do(method, path, contentType, body string) string {
	r.t.Helper()
	answer := r.open(method, path, contentType, body)
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// held returns clones of all objects of a cluster as its memory holds them, by uid and revision.
func held(t *testing.T, c *client.Client) map[string]proto.Message {
	t.Helper()
	all := make(map[string]proto.Message)
	req := &metav1.ListRequest{ResourceVersion: "0"}
	for _, list := range []func() (object.List, error){
		func() (object.List, error) { return c.Pods.List(t.Context(), req) },
		func() (object.List, error) { return c.Nodes.List(t.Context(), req) },
		func() (object.List, error) { return c.Namespaces.List(t.Context(), req) },
		func() (object.List, error) { return c.ConfigMaps.List(t.Context(), req) },
		func() (object.List, error) { return c.ServiceAccounts.List(t.Context(), req) },
		func() (object.List, error) { return c.Leases.List(t.Context(), req) },
		func() (object.List, error) { return c.Events.List(t.Context(), req) },
	} {
		l, err := list()
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Len() {
			m := l.At(i).GetMetadata()
			all[m.GetUid()+"@"+m.GetResourceVersion()] = proto.Clone(l.At(i))
		}
	}
	return all
}

// After writes of every sort, what the cluster holds in memory is what it has written down, and nobody has changed
// any of it in place: not the REST front, which hands over objects without a copy, not the registry, and not the
// scheduler, the controllers and the agents, which read what the store holds.
//
// spec: OBJ-2
func TestMemoryIsWhatWasWritten(t *testing.T) {
	const (
		plain     = "application/json"
		merge     = "application/merge-patch+json"
		strategic = "application/strategic-merge-patch+json"
		list      = "application/json-patch+json"
	)
	dir := t.TempDir()
	c := start(t, monoplane.Config{DataDir: dir, Listen: "127.0.0.1:0", Nodes: 3, UnsafeNoFsync: true})
	api, r := c.Client(), newREST(t, c)
	watch := r.open("GET", "/api/v1/pods?watch=true", plain, "")
	defer watch.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, watch) // ends with the cluster
	}()

	r.do("POST", "/api/v1/namespaces", plain, `{"metadata":{"name":"team"}}`)
	const pod = `{"metadata":{"name":%q,"labels":{"app":"web"}},"spec":{"containers":[{
		"name":"main","image":"host","command":["sleep","1"],"resources":{"requests":{"cpu":"100m"},"limits":{"memory":"64Mi"}}}]}}`
	for _, name := range []string{"a", "b", "c"} {
		r.do("POST", "/api/v1/namespaces/default/pods", plain, fmt.Sprintf(pod, name))
		r.do("POST", "/api/v1/namespaces/team/pods", plain, fmt.Sprintf(pod, name))
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := waitFor(t.Context(), api, name, running); err != nil {
			t.Fatal(err)
		}
	}
	const a, b = "/api/v1/namespaces/default/pods/a", "/api/v1/namespaces/default/pods/b"
	r.do("PUT", b, plain, strings.Replace(r.do("GET", b, plain, ""), `"app":"web"`, `"app":"db"`, 1))
	r.do("PATCH", a, merge, `{"metadata":{"labels":{"x":"1"},"annotations":{"y":"2"}}}`)
	r.do("PATCH", a, strategic,
		`{"spec":{"containers":[{"name":"main","image":"host"}]},"metadata":{"finalizers":["example.com/f"]}}`)
	r.do("PATCH", a, list, `[{"op":"add","path":"/metadata/labels/z","value":"3"}]`)
	r.do("PATCH", a+"/status", strategic, `{"status":{"conditions":[{"type":"example.com/c","status":"True"}]}}`)
	r.do("PATCH", "/api/v1/nodes/node-0", strategic,
		`{"metadata":{"labels":{"disk":"ssd"}},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`)
	r.do("POST", "/api/v1/namespaces/default/configmaps", plain,
		`{"metadata":{"name":"settings"},"data":{"color":"red"}}`)
	r.do("PATCH", "/api/v1/namespaces/default/configmaps/settings", merge, `{"data":{"color":"blue"}}`)
	r.do("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", plain,
		`{"metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}`)
	r.do("POST", "/apis/events.k8s.io/v1/namespaces/default/events", plain, `{
		"metadata":{"name":"e"},"eventTime":"2026-03-01T12:00:00.000000Z",
		"reportingController":"example.com/t","reportingInstance":"t","action":"Testing","reason":"Tested","type":"Normal",
		"regarding":{"kind":"Pod","namespace":"default","name":"a"}}`)
	r.do("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e", merge,
		`{"series":{"count":2,"lastObservedTime":"2026-03-01T12:00:01.000000Z"}}`)
	r.do("PATCH", "/api/v1/namespaces/default/events/e", merge, `{"message":"twice"}`)
	r.do("DELETE", a, plain, `{}`) // its finalizer keeps it
	r.do("DELETE", b, plain, `{}`)
	if err := waitFor(t.Context(), api, "b", gone); err != nil {
		t.Fatal(err)
	}
	ended, err := api.Namespaces.Watch(t.Context(), &metav1.WatchRequest{FieldSelector: "metadata.name=team"})
	if err != nil {
		t.Fatal(err)
	}
	r.do("DELETE", "/api/v1/namespaces/team", plain, `{}`)
	for deleted := false; !deleted; {
		batch, err := ended.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range batch.GetEvents() {
			deleted = deleted || ev.GetType() == "DELETED"
		}
	}

	before := held(t, api)
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	<-drained
	after := held(t, start(t, monoplane.Config{DataDir: dir, Nodes: -1, UnsafeNoFsync: true}).Client())
	same, pods := 0, 0
	for id, want := range before {
		got := after[id]
		if got == nil {
			continue // it was written again
		}
		same++
		if _, ok := want.(*corev1.Pod); ok {
			pods++
		}
		if !proto.Equal(got, want) {
			t.Errorf("was held as\n%v\nbut written as\n%v", want, got)
		}
	}
	t.Logf("%d objects were compared", same)
	if same < 20 || pods == 0 {
		t.Errorf("only %d objects to compare, %d of them pods", same, pods)
	}
}
