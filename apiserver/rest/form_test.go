package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	k8scorev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"

	"monoplane.dev/codec"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

var revision = regexp.MustCompile(`"resourceVersion":"[1-9][0-9]*"`)

// golden compares a body with what kube-apiserver writes, apart from the values that differ each time.
func golden(t *testing.T, a answer, want string) {
	t.Helper()
	o := a.object(t)
	meta, _ := o["metadata"].(map[string]any)
	uid, _ := meta["uid"].(string)
	created, _ := meta["creationTimestamp"].(string)
	got := revision.ReplaceAllString(a.body, `"resourceVersion":"REVISION"`)
	if uid != "" {
		got = strings.NewReplacer(uid, "UID", created, "TIME").Replace(got)
	}
	if got != want+"\n" {
		t.Errorf("body\n%s\nwant\n%s", got, want)
	}
}

// spec: OBJ-15
func TestGoldenAnswers(t *testing.T) {
	f := newFront(t)
	golden(t, f.createPod("a"),
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"UID",`+
			`"resourceVersion":"REVISION","generation":1,"creationTimestamp":"TIME",`+
			`"managedFields":[{"manager":"Go-http-client","operation":"Update","apiVersion":"v1","time":"TIME",`+
			`"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},`+
			`"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},`+
			`"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},`+
			`"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}]},`+
			`"spec":{"containers":[{"name":"c",`+
			`"image":"host","resources":{},`+
			`"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"Always","terminationMessagePolicy":"File"}],`+
			`"restartPolicy":"Always",`+
			`"terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default",`+
			`"serviceAccount":"default",`+
			`"securityContext":{},"schedulerName":"default-scheduler",`+
			`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute",`+
			`"tolerationSeconds":300},`+
			`{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],`+
			`"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"Pending",`+
			`"qosClass":"BestEffort"}}`)
	golden(t, f.do("GET", pods+"/b", ""), `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"pods \"b\" not found","reason":"NotFound","details":{"name":"b","kind":"pods"},"code":404}`)
	golden(t, f.do("GET", "/api/v1/namespaces/other/pods", ""),
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"REVISION"},"items":[]}`)
	golden(t, f.do("GET", "/api/v1/namespaces/other/pods", "", "Accept", asMetadata),
		`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"REVISION"},`+
			`"items":[]}`)
	golden(t, f.do("POST", pods, pod, "Content-Type", "application/json"),
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
			`"message":"pods \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","kind":"pods"},"code":409}`)
}

// Bodies may be JSON, YAML and Kubernetes protobuf, with or without a kind; answers may be all three too.
//
// spec: OBJ-15, CLI-2
func TestBodiesAndAnswers(t *testing.T) {
	f := newFront(t)
	binary, err := codec.AppendProtobuf(nil, &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{
		"application/json": `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c",` +
			`"image":"host"}]}}`,
		"application/yaml": "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec:\n  containers:\n" +
			"  - {name: c, image: host}\n",
		"application/vnd.kubernetes.protobuf": string(binary),
	}
	for in, body := range bodies {
		for out := range bodies {
			t.Run(in+" to "+out, func(t *testing.T) {
				a := f.want(f.do("POST", pods, body, "Content-Type", in, "Accept", out), 201)
				checkPod(t, a, out)
				checkPod(t, f.want(f.do("GET", pods+"/p", "", "Accept", out), 200), out)
				f.want(f.do("DELETE", pods+"/p?gracePeriodSeconds=0", "", "Accept", out), 200)
			})
		}
	}
}

// checkPod decodes with the library that Kubernetes clients use.
func checkPod(t *testing.T, a answer, contentType string) {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != contentType {
		t.Errorf("Content-Type %q, want %q", got, contentType)
	}
	var p k8scorev1.Pod
	switch contentType {
	case "application/vnd.kubernetes.protobuf":
		s := runtime.NewScheme()
		_ = k8scorev1.AddToScheme(s)
		o, gvk, err := protobuf.NewSerializer(s, s).Decode([]byte(a.body), nil, nil)
		if err != nil || gvk.Kind != "Pod" {
			t.Fatalf("decode: %v, %v", gvk, err)
		}
		p = *o.(*k8scorev1.Pod)
		p.Kind = gvk.Kind
	default:
		if err := yaml.Unmarshal([]byte(a.body), &p); err != nil {
			t.Fatal(err)
		}
	}
	if p.Kind != "Pod" || p.Name != "p" || p.Namespace != "default" || p.Spec.Containers[0].Image != "host" {
		t.Errorf("pod %+v", p)
	}
}

// spec: CLI-2
func TestListForms(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	newest := f.createPod("b").revision(t)
	s := runtime.NewScheme()
	_ = k8scorev1.AddToScheme(s)
	a := f.do("GET", pods, "", "Accept", "application/vnd.kubernetes.protobuf")
	o, _, err := protobuf.NewSerializer(s, s).Decode([]byte(a.body), nil, nil)
	if l, ok := o.(*k8scorev1.PodList); err != nil || !ok || len(l.Items) != 2 || l.Items[1].Name != "b" ||
		l.ResourceVersion != newest {
		t.Errorf("protobuf list: %v, %v", o, err)
	}
	a = f.do("GET", pods, "", "Accept",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	var partial metav1.PartialObjectMetadataList
	if err := codec.DecodeProtobuf([]byte(a.body), &partial); err != nil || len(partial.Items) != 2 ||
		partial.Items[1].GetMetadata().GetName() != "b" {
		t.Errorf("metadata in protobuf: %v, %v", &partial, err)
	}
	f.want(f.do("GET", pods, "", "Accept", asMetadata), 200, `"kind":"PartialObjectMetadataList"`,
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b"`)
	f.want(f.do("GET", pods+"/a", "", "Accept", asMetadata), 200,
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"`)
	f.want(f.do("GET", pods, "", "Accept", "application/yaml"), 200, "kind: PodList\n", "    name: b\n")
}

// spec: CLI-3
func TestTables(t *testing.T) {
	f := newFront(t)
	newest := f.createPod("a").revision(t)
	for _, tt := range []struct{ query, want, lacks string }{
		{"", `"object":{"kind":"PartialObjectMetadata"`, `"spec"`},
		{"?includeObject=Metadata", `"object":{"kind":"PartialObjectMetadata"`, `"spec"`},
		{"?includeObject=None", `"object":null`, `"uid"`},
		{"?includeObject=Object", `"object":{"kind":"Pod","apiVersion":"v1"`, "Partial"},
	} {
		for _, path := range []string{pods, pods + "/a"} {
			a := f.want(f.do("GET", path+tt.query, "", "Accept", asTable), 200,
				`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`+newest+`"}`,
				`"rows":[{"cells":["a",`, tt.want)
			if strings.Contains(a.body, tt.lacks) {
				t.Errorf("%s%s has %s: %s", path, tt.query, tt.lacks, a.body)
			}
			a.object(t)
		}
	}
}

// An object is encoded once for all readers; what a write answers is not taken for a revision.
func TestEncodedOnce(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	f.want(f.do("POST", pods+"?dryRun=All", strings.Replace(pod, `"a"`, `"z"`, 1)), 201)
	if f.h.Encoded() != 0 {
		t.Errorf("the answer to a write was cached")
	}
	for range 3 {
		f.do("GET", pods+"/a", "")
		f.do("GET", pods, "")
		f.watch(t, pods+"?watch=true", "").next()
		f.do("GET", pods+"?includeObject=Object", "", "Accept", asTable)
	}
	// The dry run of the API in memory stores; what is stored is encoded once each.
	if n := f.h.Encoded(); n != 2 && n != 1 {
		t.Errorf("%d encodings", n)
	}
}

// A list that takes many pieces arrives whole, in every form.
func TestLongLists(t *testing.T) {
	s := &scripted{}
	for i := range 3000 {
		s.list = append(s.list, &corev1.Pod{Metadata: &metav1.ObjectMeta{
			Name: fmt.Sprintf("pod-%04d", i), Uid: fmt.Sprint(i), ResourceVersion: fmt.Sprint(i + 10),
			Annotations: map[string]string{"x": strings.Repeat("y", 300)},
		}})
	}
	f := s.front(t)
	for range 2 {
		a := f.want(f.do("GET", pods, ""), 200)
		items := a.object(t)["items"].([]any)
		if len(items) != 3000 || items[2999].(map[string]any)["metadata"].(map[string]any)["name"] != "pod-2999" {
			t.Errorf("%d items", len(items))
		}
		var l corev1.PodList
		a = f.want(f.do("GET", pods, "", "Accept", "application/vnd.kubernetes.protobuf"), 200)
		if err := codec.DecodeProtobuf([]byte(a.body), &l); err != nil || len(l.Items) != 3000 ||
			!proto.Equal(l.Items[2999], s.list[2999]) {
			t.Errorf("protobuf: %d items, %v", len(l.Items), err)
		}
		if rows := f.do("GET", pods, "", "Accept", asTable).object(t)["rows"].([]any); len(rows) != 3000 {
			t.Errorf("%d rows", len(rows))
		}
	}
}

// The object of a DELETED event may differ from what others see at its revision.
func TestDeletedIsEncodedApart(t *testing.T) {
	at := func(phase string) *corev1.Pod {
		return &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "a", Uid: "u", ResourceVersion: "7"},
			Status: &corev1.PodStatus{Phase: phase}}
	}
	s := &scripted{list: []object.Object{at("Running")}}
	s.watch = func(_ context.Context, accept func() error, send func([]object.Event) error) error {
		return send([]object.Event{{Type: object.Deleted, Object: at("Pending")}})
	}
	f := s.front(t)
	f.want(f.do("GET", pods+"/a", ""), 200, `"phase":"Running"`)
	f.want(f.do("GET", pods+"?watch=true", ""), 200, `"phase":"Pending"`)
	f.want(f.do("GET", pods+"/a", ""), 200, `"phase":"Running"`)
}

// spec: OBJ-3
func TestYAML(t *testing.T) {
	f := newFront(t)
	post := func(body, query string) answer {
		return f.do(http.MethodPost, pods+query, body, "Content-Type", "application/yaml")
	}
	f.want(post("metadata: {name: x}\nspec: {a: 1, a: 2}\n", "?fieldValidation=Strict"), 400, "strict decoding error",
		"already set in map")
	f.want(post("metadata: {name: x\n", ""), 400, "error converting YAML to JSON")
	f.want(post("metadata: {name: x}\nspec: {activeDeadlineSeconds: .nan}\n", ""), 400, "cannot express")
	f.want(post("metadata: {name: x}\nspec: {? [1] : 2}\n", ""), 400)
	bomb := "a: &a " + strings.Repeat("x", 100000) + "\nb: [" + strings.Repeat("*a,", 1000) + "*a]\n"
	f.want(post(bomb, ""), 400, "too large once its aliases are expanded")
	f.want(post(strings.Repeat("# comment\n", 110000), ""), 413, "limit for YAML")
	if a := f.want(post(strings.Repeat("a:\n", 1000), "?fieldValidation=Strict"), 400); strings.Count(a.body,
		"already set") != 100 {
		t.Errorf("%d reports", strings.Count(a.body, "already set"))
	}
	f.want(post("metadata: {name: 1.5e3, labels: {on: yes, 1: 2}}\n", ""), 400, "metadata.name")
	f.want(post("metadata: {name: good, labels: {a: \"yes\", 1: \"2\"}}\n"+
		"spec: {hostNetwork: yes, activeDeadlineSeconds: 5, containers: [{name: c, image: host}]}\n", ""), 201,
		`"labels":{"1":"2","a":"yes"}`, `"hostNetwork":true`)
}

// What is applied is YAML or JSON; whoever applies says who that is, and is told whether it has made something.
//
// spec: OBJ-9, OBJ-15
func TestApply(t *testing.T) {
	f := newFront(t)
	const path = "/api/v1/namespaces/default/configmaps/c"
	apply := func(query, body, contentType string) answer {
		return f.do("PATCH", path+query, body, "Content-Type", contentType)
	}
	const typ = "application/apply-patch+yaml"
	const doc = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"
	if a := apply("?fieldManager=me", doc, "application/apply-patch+cbor"); a.code != http.StatusUnsupportedMediaType {
		t.Errorf("CBOR: %d %s", a.code, a.body)
	}
	if a := apply("", doc, typ); a.code != http.StatusUnprocessableEntity ||
		!strings.Contains(a.body, "fieldManager: Required value: is required for apply patch") {
		t.Errorf("without a manager: %d %s", a.code, a.body)
	}
	if a := apply("?fieldManager=me", doc, typ); a.code != http.StatusCreated {
		t.Errorf("made: %d %s", a.code, a.body)
	}
	if a := apply("?fieldManager=me", doc, typ); a.code != http.StatusOK {
		t.Errorf("applied again: %d %s", a.code, a.body)
	}
	other := `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"c"}}`
	if a := apply("?fieldManager=other", other, typ); a.code != http.StatusConflict ||
		!strings.Contains(a.body, `"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"me\"",`+
			`"field":".data.a"}]`) {
		t.Errorf("a conflict: %d %s", a.code, a.body)
	}
	if a := apply("?fieldManager=other&force=true", other, typ); a.code != http.StatusOK {
		t.Errorf("forced: %d %s", a.code, a.body)
	}
}
