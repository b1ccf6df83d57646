package clientgo_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"
)

// object is what typed clients make and read.
type object interface {
	metav1.Object
	runtime.Object
}

// client is what every typed client can do: T is the object, L its list, A its apply configuration.
type client[T object, L runtime.Object, A any] interface {
	Create(ctx context.Context, o T, opts metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Update(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string,
	) (T, error)
	Apply(ctx context.Context, config A, opts metav1.ApplyOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// kind is a kind in the hands of typed clients.
type kind struct {
	// resource is its group, version and plural as they are in paths.
	resource string
	// verbs does with it all that its clients can.
	verbs func(*suite)
}

// suite is what a kind is tested with.
type suite struct {
	t       *testing.T
	c       *kubernetes.Clientset
	dynamic dynamic.Interface
	meta    metadata.Interface
	gvr     schema.GroupVersionResource
	served  metav1.APIResource
	// status says whether the kind is served with one of its own.
	status bool
}

// named returns the name of one of a few objects of the kind.
func (s *suite) named(i int) string {
	if s.gvr.Resource == "ipaddresses" {
		return fmt.Sprint("192.0.2.", 1+i)
	}
	return strings.NewReplacer("/", "-", ".", "-").Replace(
		fmt.Sprint("typed-", s.gvr.GroupVersion(), "-", s.gvr.Resource, "-", i))
}

const template = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`

const selected = `"selector":{"matchLabels":{"a":"b"}},"template":` + template

// kinds are those that are stored, with the least that is valid of each, and a status.
var kinds = []kind{
	{"v1/configmaps", func(s *suite) { verbs(s, s.c.CoreV1().ConfigMaps("default"), `{"data":{"a":"b"}}`, "") }},
	{"v1/endpoints", func(s *suite) { verbs(s, s.c.CoreV1().Endpoints("default"), `{}`, "") }},
	{"v1/events", func(s *suite) {
		verbs(s, s.c.CoreV1().Events("default"), `{"involvedObject":{"namespace":"default"},"reason":"R"}`, "")
	}},
	{"v1/limitranges", func(s *suite) { verbs(s, s.c.CoreV1().LimitRanges("default"), `{"spec":{"limits":[]}}`, "") }},
	{"v1/namespaces", func(s *suite) {
		verbs(s, s.c.CoreV1().Namespaces(), `{}`, `{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"v1/nodes", func(s *suite) {
		verbs(s, s.c.CoreV1().Nodes(), `{}`, `{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"v1/persistentvolumeclaims", func(s *suite) {
		verbs(s, s.c.CoreV1().PersistentVolumeClaims("default"), `{"spec":{"accessModes":["ReadWriteOnce"],`+
			`"resources":{"requests":{"storage":"1Gi"}}}}`, `{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"v1/persistentvolumes", func(s *suite) {
		verbs(s, s.c.CoreV1().PersistentVolumes(), `{"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},`+
			`"hostPath":{"path":"/tmp/x"}}}`, `{"message":"seen"}`)
	}},
	{"v1/pods", func(s *suite) {
		verbs(s, s.c.CoreV1().Pods("default"), `{"spec":{"containers":[{"name":"c","image":"i"}]}}`,
			`{"conditions":[{"type":"example.com/seen","status":"True"}]}`)
	}},
	{"v1/podtemplates", func(s *suite) {
		verbs(s, s.c.CoreV1().PodTemplates("default"), `{"template":`+template+`}`, "")
	}},
	{"v1/replicationcontrollers", func(s *suite) {
		verbs(s, s.c.CoreV1().ReplicationControllers("default"), `{"spec":{"template":`+template+`}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"v1/resourcequotas", func(s *suite) {
		verbs(s, s.c.CoreV1().ResourceQuotas("default"), `{"spec":{"hard":{"count/jobs.batch":"9"}}}`,
			`{"hard":{"count/jobs.batch":"9"},"used":{"count/jobs.batch":"1"}}`)
	}},
	{"v1/secrets", func(s *suite) { verbs(s, s.c.CoreV1().Secrets("default"), `{"data":{"a":"YQ=="}}`, "") }},
	{"v1/serviceaccounts", func(s *suite) { verbs(s, s.c.CoreV1().ServiceAccounts("default"), `{}`, "") }},
	{"v1/services", func(s *suite) {
		verbs(s, s.c.CoreV1().Services("default"), `{"spec":{"ports":[{"port":80}]}}`,
			`{"conditions":[{"type":"Seen","status":"True","reason":"R","message":"",`+
				`"lastTransitionTime":"2000-01-01T00:00:00Z"}]}`)
	}},
	{"apps/v1/controllerrevisions", func(s *suite) {
		verbs(s, s.c.AppsV1().ControllerRevisions("default"), `{"revision":1,"data":{"a":"b"}}`, "")
	}},
	{"apps/v1/daemonsets", func(s *suite) {
		verbs(s, s.c.AppsV1().DaemonSets("default"), `{"spec":{`+selected+`}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"apps/v1/deployments", func(s *suite) {
		verbs(s, s.c.AppsV1().Deployments("default"), `{"spec":{`+selected+`}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"apps/v1/replicasets", func(s *suite) {
		verbs(s, s.c.AppsV1().ReplicaSets("default"), `{"spec":{`+selected+`}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"apps/v1/statefulsets", func(s *suite) {
		verbs(s, s.c.AppsV1().StatefulSets("default"), `{"spec":{`+selected+`}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"autoscaling/v1/horizontalpodautoscalers", func(s *suite) {
		verbs(s, s.c.AutoscalingV1().HorizontalPodAutoscalers("default"), `{"spec":{"maxReplicas":2,`+
			`"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`, `{"desiredReplicas":2}`)
	}},
	{"autoscaling/v2/horizontalpodautoscalers", func(s *suite) {
		verbs(s, s.c.AutoscalingV2().HorizontalPodAutoscalers("default"), `{"spec":{"maxReplicas":2,`+
			`"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`, `{"desiredReplicas":2}`)
	}},
	{"batch/v1/cronjobs", func(s *suite) {
		verbs(s, s.c.BatchV1().CronJobs("default"), `{"spec":{"schedule":"@yearly","jobTemplate":{"spec":{"template":`+
			`{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
			`{"lastScheduleTime":"2000-01-01T00:00:00Z"}`)
	}},
	{"batch/v1/jobs", func(s *suite) {
		verbs(s, s.c.BatchV1().Jobs("default"), `{"spec":{"suspend":true,"template":`+
			`{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"certificates.k8s.io/v1/certificatesigningrequests", func(s *suite) {
		verbs(s, s.c.CertificatesV1().CertificateSigningRequests(), `{"spec":{"signerName":"example.com/nobody","usages":`+
			`["client auth"],"request":"`+signingRequest(s.t)+`"}}`, `{"conditions":[]}`)
	}},
	{"coordination.k8s.io/v1/leases", func(s *suite) {
		verbs(s, s.c.CoordinationV1().Leases("default"), `{"spec":{"renewTime":"2000-01-01T00:00:00.000000Z"}}`, "")
	}},
	{"discovery.k8s.io/v1/endpointslices", func(s *suite) {
		verbs(s, s.c.DiscoveryV1().EndpointSlices("default"), `{"addressType":"IPv4","endpoints":[],"ports":[]}`, "")
	}},
	{"events.k8s.io/v1/events", func(s *suite) {
		verbs(s, s.c.EventsV1().Events("default"), `{"regarding":{"namespace":"default"},"reason":"R","type":"Normal",`+
			`"eventTime":"2000-01-01T00:00:00.000000Z","action":"A","reportingController":"example.com/t",`+
			`"reportingInstance":"t"}`, "")
	}},
	{"flowcontrol.apiserver.k8s.io/v1/flowschemas", func(s *suite) {
		verbs(s, s.c.FlowcontrolV1().FlowSchemas(), `{"spec":{"priorityLevelConfiguration":{"name":"exempt"},`+
			`"matchingPrecedence":100,"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],"nonResourceRules":`+
			`[{"verbs":["get"],"nonResourceURLs":["/healthz"]}]}]}}`, `{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", func(s *suite) {
		verbs(s, s.c.FlowcontrolV1().PriorityLevelConfigurations(), `{"spec":{"type":"Limited","limited":`+
			`{"nominalConcurrencyShares":1,"limitResponse":{"type":"Reject"}}}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"networking.k8s.io/v1/ingressclasses", func(s *suite) {
		verbs(s, s.c.NetworkingV1().IngressClasses(), `{"spec":{"controller":"example.com/c"}}`, "")
	}},
	{"networking.k8s.io/v1/ingresses", func(s *suite) {
		verbs(s, s.c.NetworkingV1().Ingresses("default"), `{"spec":{"defaultBackend":{"service":{"name":"s","port":`+
			`{"number":80}}}}}`, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}`)
	}},
	{"networking.k8s.io/v1/ipaddresses", func(s *suite) {
		verbs(s, s.c.NetworkingV1().IPAddresses(), `{"spec":{"parentRef":{"resource":"tests","name":"t"}}}`, "")
	}},
	{"networking.k8s.io/v1/networkpolicies", func(s *suite) {
		verbs(s, s.c.NetworkingV1().NetworkPolicies("default"), `{"spec":{"podSelector":{}}}`, "")
	}},
	{"networking.k8s.io/v1/servicecidrs", func(s *suite) {
		verbs(s, s.c.NetworkingV1().ServiceCIDRs(), `{"spec":{"cidrs":["192.0.2.0/24"]}}`,
			`{"conditions":[{"type":"Seen","status":"True"}]}`)
	}},
	{"node.k8s.io/v1/runtimeclasses", func(s *suite) {
		verbs(s, s.c.NodeV1().RuntimeClasses(), `{"handler":"h"}`, "")
	}},
	{"policy/v1/poddisruptionbudgets", func(s *suite) {
		verbs(s, s.c.PolicyV1().PodDisruptionBudgets("default"), `{"spec":{"minAvailable":1,"selector":{"matchLabels":`+
			`{"x":"y"}}}}`, `{"expectedPods":3}`)
	}},
	{"rbac.authorization.k8s.io/v1/clusterrolebindings", func(s *suite) {
		verbs(s, s.c.RbacV1().ClusterRoleBindings(), `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io",`+
			`"kind":"ClusterRole","name":"view"}}`, "")
	}},
	{"rbac.authorization.k8s.io/v1/clusterroles", func(s *suite) {
		verbs(s, s.c.RbacV1().ClusterRoles(), `{"rules":[]}`, "")
	}},
	{"rbac.authorization.k8s.io/v1/rolebindings", func(s *suite) {
		verbs(s, s.c.RbacV1().RoleBindings("default"), `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io",`+
			`"kind":"ClusterRole","name":"view"}}`, "")
	}},
	{"rbac.authorization.k8s.io/v1/roles", func(s *suite) {
		verbs(s, s.c.RbacV1().Roles("default"), `{"rules":[]}`, "")
	}},
	{"scheduling.k8s.io/v1/priorityclasses", func(s *suite) {
		verbs(s, s.c.SchedulingV1().PriorityClasses(), `{"value":5}`, "")
	}},
	{"storage.k8s.io/v1/storageclasses", func(s *suite) {
		verbs(s, s.c.StorageV1().StorageClasses(), `{"provisioner":"example.com/p"}`, "")
	}},
}

// Every kind that is stored can be made, read, listed, watched, changed in all ways and deleted by client-go's typed
// clients, in both encodings, and by those for metadata and for anything.
//
// spec: OBJ-1, OBJ-5, OBJ-6, OBJ-7, OBJ-9, OBJ-15
func TestTypedClients(t *testing.T) {
	for _, protobuf := range []bool{false, true} {
		t.Run(fmt.Sprintf("protobuf=%v", protobuf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t)
				served := stored(t, s.client(false))
				tested := map[string]bool{}
				for _, k := range kinds {
					tested[k.resource] = true
					i := slices.IndexFunc(served, func(r servedKind) bool { return r.path() == k.resource })
					if i < 0 {
						t.Logf("%s is not served", k.resource)
						continue
					}
					k.verbs(&suite{
						t: t, c: s.client(protobuf), dynamic: dynamic.NewForConfigOrDie(s.config(false)),
						meta: metadata.NewForConfigOrDie(s.config(protobuf)), gvr: served[i].gvr, served: served[i].resource,
						status: served[i].status,
					})
				}
				for _, r := range served {
					if !tested[r.path()] {
						t.Errorf("%s is served, and no typed client is tested with it", r.path())
					}
				}
			})
		})
	}
}

// servedKind is a kind as discovery tells of it.
type servedKind struct {
	gvr      schema.GroupVersionResource
	resource metav1.APIResource
	status   bool
}

func (s servedKind) path() string { return s.gvr.GroupVersion().String() + "/" + s.gvr.Resource }

// stored returns the kinds that can be made and listed, and that client-go knows.
func stored(t *testing.T, c *kubernetes.Clientset) []servedKind {
	t.Helper()
	_, lists, err := c.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var all []servedKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if !scheme.Scheme.IsVersionRegistered(gv) {
			continue // of Monoplane's own, or an add-on's
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !(discovery.SupportsAllVerbs{Verbs: []string{"create", "list"}}).Match("", &r) {
				continue
			}
			all = append(all, servedKind{gv.WithResource(r.Name), r, slices.ContainsFunc(list.APIResources,
				func(x metav1.APIResource) bool { return x.Name == r.Name+"/status" })})
		}
	}
	return all
}

// verbs does with a kind all that clients can. Body is the least that is valid, and status what is written to it.
func verbs[T object, L runtime.Object, A any](s *suite, api client[T, L, A], body, status string) {
	t := s.t
	t.Helper()
	ctx := t.Context()
	name := s.named(0)
	fail := func(what string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s", s.gvr.Resource, fmt.Sprintf(what, args...))
	}
	fresh := func(name string) T {
		var o T
		o = reflect.New(reflect.TypeOf(o).Elem()).Interface().(T)
		if err := json.Unmarshal([]byte(body), o); err != nil {
			t.Fatal(err)
		}
		o.SetName(name)
		o.SetLabels(map[string]string{"suite": "typed"})
		return o
	}

	made, err := api.Create(ctx, fresh(name), metav1.CreateOptions{})
	if err != nil {
		fail("create: %v", err)
		return
	}
	if made.GetUID() == "" || made.GetResourceVersion() == "" || made.GetCreationTimestamp() == (metav1.Time{}) {
		fail("made: %+v", made)
	}
	one := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	after := one
	after.ResourceVersion = made.GetResourceVersion()
	w, err := api.Watch(ctx, after)
	if err != nil {
		fail("watch: %v", err)
		return
	}
	defer w.Stop()
	if o, err := api.Get(ctx, name, metav1.GetOptions{}); err != nil || o.GetUID() != made.GetUID() {
		fail("get: %v, %v", o.GetUID(), err)
	}
	if l, err := api.List(ctx, one); err != nil || meta.LenList(l) != 1 {
		fail("list: %v, %v", l, err)
	}

	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		labels := o.GetLabels()
		labels["updated"] = "yes"
		o.SetLabels(labels)
		o, err = api.Update(ctx, o, metav1.UpdateOptions{})
		if err == nil && o.GetLabels()["updated"] != "yes" {
			fail("updated: %v", o.GetLabels())
		}
		return err
	})
	if err != nil {
		fail("update: %v", err)
	}
	for how, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"labels":{"merge":"yes"}}}`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"strategic":"yes"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`,
	} {
		if _, err := api.Patch(ctx, name, how, []byte(patch), metav1.PatchOptions{}); err != nil {
			fail("%s: %v", how, err)
		}
	}
	updateStatus(s, api, name, status)

	var config A
	config = reflect.New(reflect.TypeOf(config).Elem()).Interface().(A)
	apply := map[string]any{
		"apiVersion": s.gvr.GroupVersion().String(), "kind": s.served.Kind,
		"metadata": map[string]any{"name": name, "labels": map[string]string{"applied": "yes"}},
	}
	if text, err := json.Marshal(apply); err != nil || json.Unmarshal(text, config) != nil {
		t.Fatalf("%s: %v", text, err)
	}
	o, err := api.Apply(ctx, config, metav1.ApplyOptions{FieldManager: "suite"})
	if err != nil {
		fail("apply: %v", err)
		return
	}
	for _, label := range []string{"updated", "merge", "strategic", "json", "applied"} {
		if o.GetLabels()[label] != "yes" {
			fail("the labels are %v", o.GetLabels())
			break
		}
	}
	if !slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == "suite" && e.Operation == metav1.ManagedFieldsOperationApply
	}) {
		fail("nobody owns what was applied: %v", o.GetManagedFields())
	}
	anyClients(s, name)

	if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		fail("delete: %v", err)
	}
	watched(s, w, name)
	for i := range 2 {
		if _, err := api.Create(ctx, fresh(s.named(1+i)), metav1.CreateOptions{}); err != nil {
			fail("create once more: %v", err)
		}
	}
	ours := metav1.ListOptions{LabelSelector: "suite=typed"}
	if l, err := api.List(ctx, ours); err != nil || meta.LenList(l) < 2 {
		fail("list by a label: %v, %v", l, err)
	}
	deleteAll(s, api, ours)
	time.Sleep(3 * time.Minute) // pods have their grace, volumes and namespaces their finalizers
	if l, err := api.List(ctx, ours); err != nil || meta.LenList(l) != 0 {
		fail("after all have been deleted: %v, %v", l, err)
	}
}

// updateStatus writes the status of an object, where it has one of its own.
func updateStatus[T object, L runtime.Object, A any](s *suite, api client[T, L, A], name, status string) {
	s.t.Helper()
	writer, ok := api.(interface {
		UpdateStatus(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error)
	})
	if s.status != (status != "") || s.status && !ok {
		s.t.Errorf("%s: a status of its own is served: %v, the typed client knows one: %v, it is tested with %q",
			s.gvr.Resource, s.status, ok, status)
	}
	if !s.status || !ok {
		return
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := api.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(`{"status":`+status+`}`), o); err != nil {
			return err
		}
		want := statusOf(s.t, o)
		if o, err = writer.UpdateStatus(s.t.Context(), o, metav1.UpdateOptions{}); err != nil {
			return err
		}
		for name, value := range want {
			if got := statusOf(s.t, o)[name]; !reflect.DeepEqual(got, value) {
				s.t.Errorf("%s: status.%s is %v, and %v was written", s.gvr.Resource, name, got, value)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Errorf("%s: update of the status: %v", s.gvr.Resource, err)
	}
}

func statusOf(t *testing.T, o any) map[string]any {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Status map[string]any `json:"status"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all.Status
}

// anyClients does with an object what clients for metadata and for anything can.
func anyClients(s *suite, name string) {
	s.t.Helper()
	ctx, one := s.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	fail := func(what string, args ...any) {
		s.t.Helper()
		s.t.Errorf("%s: %s", s.gvr.Resource, fmt.Sprintf(what, args...))
	}
	metadata, any := s.meta.Resource(s.gvr).Namespace(""), s.dynamic.Resource(s.gvr).Namespace("")
	if s.served.Namespaced {
		metadata, any = s.meta.Resource(s.gvr).Namespace("default"), s.dynamic.Resource(s.gvr).Namespace("default")
	}
	if o, err := metadata.Get(ctx, name, metav1.GetOptions{}); err != nil || o.Labels["applied"] != "yes" {
		fail("metadata: get: %v, %v", o, err)
	}
	if l, err := metadata.List(ctx, one); err != nil || len(l.Items) != 1 || l.Items[0].Name != name {
		fail("metadata: list: %v, %v", l, err)
	}
	if o, err := metadata.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"metadata":"yes"}}}`),
		metav1.PatchOptions{}); err != nil || o.Labels["metadata"] != "yes" {
		fail("metadata: patch: %v, %v", o, err)
	}
	w, err := metadata.Watch(ctx, one)
	if err != nil {
		fail("metadata: watch: %v", err)
		return
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Added {
		fail("metadata: watch: %v", e)
	} else if o, ok := e.Object.(*metav1.PartialObjectMetadata); !ok || o.Name != name {
		fail("metadata: watch: %T", e.Object)
	}
	if l, err := any.List(ctx, one); err != nil || len(l.Items) != 1 || l.Items[0].GetKind() != s.served.Kind {
		fail("dynamic: list: %v, %v", l, err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := any.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.SetAnnotations(map[string]string{"dynamic": "yes"})
		if o, err = any.Update(ctx, o, metav1.UpdateOptions{}); err == nil && o.GetAnnotations()["dynamic"] != "yes" {
			fail("dynamic: updated: %v", o.GetAnnotations())
		}
		return err
	})
	if err != nil {
		fail("dynamic: update: %v", err)
	}
}

// watched reads a watch until the object is gone: it is changed several times, and then deleted.
func watched(s *suite, w watch.Interface, name string) {
	s.t.Helper()
	changes := 0
	for e := range w.ResultChan() {
		o, ok := e.Object.(object)
		if !ok || o.GetName() != name {
			s.t.Errorf("%s: watch: %v", s.gvr.Resource, e)
			return
		}
		switch e.Type {
		case watch.Modified:
			changes++
		case watch.Deleted:
			if changes < 5 {
				s.t.Errorf("%s: watch: %d changes before the deletion", s.gvr.Resource, changes)
			}
			return
		default:
			s.t.Errorf("%s: watch: %v", s.gvr.Resource, e)
			return
		}
	}
	s.t.Errorf("%s: the watch ended before the object was gone", s.gvr.Resource)
}

// deleteAll deletes what a selector selects, with the typed client where it can, as it cannot with namespaces and
// services.
func deleteAll(s *suite, api any, which metav1.ListOptions) {
	s.t.Helper()
	ctx := s.t.Context()
	typed, ok := api.(interface {
		DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, which metav1.ListOptions) error
	})
	can := slices.Contains(s.served.Verbs, "deletecollection")
	switch {
	case ok && can:
		if err := typed.DeleteCollection(ctx, metav1.DeleteOptions{}, which); err != nil {
			s.t.Errorf("%s: delete collection: %v", s.gvr.Resource, err)
		}
	case ok:
		s.t.Errorf("%s: the typed client can delete a collection, and that is not served", s.gvr.Resource)
	default:
		any := s.dynamic.Resource(s.gvr).Namespace("")
		if s.served.Namespaced {
			any = s.dynamic.Resource(s.gvr).Namespace("default")
		}
		l, err := any.List(ctx, which)
		if err != nil {
			s.t.Errorf("%s: %v", s.gvr.Resource, err)
			return
		}
		for _, o := range l.Items {
			if err := any.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
				s.t.Errorf("%s: delete: %v", s.gvr.Resource, err)
			}
		}
	}
}

// signingRequest returns a request for a certificate, as JSON has it.
func signingRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "jane"},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(text), `"`)
}
