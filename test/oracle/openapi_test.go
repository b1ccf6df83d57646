package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/rest"
)

// front serves the documents of the API, and nothing else.
func front(t *testing.T) func(path string) map[string]any {
	t.Helper()
	get := frontBytes(t)
	return func(path string) map[string]any {
		var v map[string]any
		if err := json.Unmarshal(get(path, "application/json"), &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return v
	}
}

// frontBytes is front with the documents as they come, in a form that the client accepts.
func frontBytes(t *testing.T) func(path, accept string) []byte {
	t.Helper()
	h, err := rest.New(rest.Config{
		Conn: struct{ grpc.ClientConnInterface }{}, Logger: slog.New(slog.DiscardHandler), Version: "1.36.3",
		Authenticate: func(_ http.ResponseWriter, r *http.Request) *http.Request {
			return r.WithContext(authn.WithUser(r.Context(), &authn.User{Name: "u"}))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return func(path, accept string) []byte {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", path, w.Code)
		}
		return w.Body.Bytes()
	}
}

// at follows keys into a document; nil when there is nothing.
func at(v any, keys ...string) any {
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func under(v any, keys ...string) map[string]any {
	m, _ := at(v, keys...).(map[string]any)
	return m
}

// told is what programs read of a schema; descriptions are our own.
func told(schema map[string]any) map[string]any {
	out := make(map[string]any)
	for key, v := range schema {
		switch key {
		case "description", "x-kubernetes-unions":
		case "enum": // not in what Kubernetes publishes; see TestValuesAreThoseOfKubernetes
		case "x-kubernetes-list-type":
			if v != "atomic" { // which is also what a list is of which nothing is said
				out[key] = v
			}
		case "default":
			// The zero value is said of some fields, and says nothing.
			if z := reflect.Zero(reflect.TypeOf(v)).Interface(); !reflect.DeepEqual(v, z) && fmt.Sprint(v) != "map[]" {
				out[key] = v
			}
		case "items", "additionalProperties":
			out[key] = told(v.(map[string]any))
		case "allOf":
			out["$ref"] = v.([]any)[0].(map[string]any)["$ref"]
		case "required", "x-kubernetes-list-map-keys":
			list := slices.Clone(v.([]any))
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			out[key] = list
		case "x-kubernetes-group-version-kind":
			out[key] = v.([]any)[:1] // options and Status are of every group there, first of the core group
		case "properties":
			properties := make(map[string]any)
			for name, p := range v.(map[string]any) {
				properties[name] = told(p.(map[string]any))
			}
			out[key] = properties
		default:
			out[key] = v
		}
	}
	return out
}

// publishedGroup is what Kubernetes publishes of a version of a group: what programs read of its schemas, and the
// operations by their methods and paths.
type publishedGroup struct {
	Schemas    map[string]map[string]any
	Operations map[string]map[string]any
}

// operationKeys are what is compared of operations.
var operationKeys = []string{"operationId", "x-kubernetes-action", "x-kubernetes-group-version-kind"}

// canonical is a value as it comes out of JSON.
func canonical(t *testing.T, v any) (out any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// differences lists in which leaves two values differ, by their paths.
func differences(path string, theirs, ours any) []string {
	a, isMap := theirs.(map[string]any)
	b, isMapToo := ours.(map[string]any)
	if !isMap || !isMapToo {
		if reflect.DeepEqual(theirs, ours) {
			return nil
		}
		return []string{fmt.Sprintf("%s: Kubernetes %v, Monoplane %v", path, theirs, ours)}
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		list = append(list, differences(path+"."+key, a[key], b[key])...)
	}
	return list
}

// unlike are kinds and groups that are not compared, with the reason.
var unlike = map[string]string{
	"metrics.k8s.io":           "of a server of its own, with documents of its own",
	"scheduling.monoplane.dev": "Kubernetes knows nothing of it",
}

// ownOperations are those that Kubernetes has not, with the reason.
var ownOperations = map[string]string{
	"delete /api/v1/namespaces": "a collection like any other here",
}

// Every schema says the same of its fields as Kubernetes' own does: names, types, formats, what is required, defaults,
// patch keys and owners of lists; and every operation has the same name. spec: CLI-2
func TestSchemasAreThoseOfKubernetes(t *testing.T) {
	get := front(t)
	schemas, operations := 0, 0
	for gv := range under(get("/openapi/v3"), "paths") {
		group, _, _ := strings.Cut(strings.TrimPrefix(gv, "apis/"), "/")
		if unlike[group] != "" {
			continue
		}
		ours := get("/openapi/v3/" + gv)
		theirs := ask[publishedGroup](t, "openapi", gv)
		for name, schema := range under(ours, "components", "schemas") {
			their := theirs.Schemas[name]
			if their == nil {
				t.Errorf("%s: Kubernetes has no schema %s", gv, name)
				continue
			}
			schemas++
			for _, d := range differences(name, their, canonical(t, told(schema.(map[string]any)))) {
				t.Error(d)
			}
		}
		for path, item := range under(ours, "paths") {
			for method, op := range item.(map[string]any) {
				operations++
				their := theirs.Operations[method+" "+path]
				if their == nil && ownOperations[method+" "+path] != "" {
					continue
				}
				for _, key := range operationKeys {
					if !reflect.DeepEqual(their[key], at(op, key)) {
						t.Errorf("%s %s: %s: Kubernetes %v, Monoplane %v", method, path, key, their[key], at(op, key))
					}
				}
			}
		}
	}
	if schemas < 400 || operations < 300 {
		t.Errorf("only %d schemas and %d operations", schemas, operations)
	}
	t.Logf("%d schemas, %d operations", schemas, operations)
}

// The values that a field may have are those that Kubernetes knows of it. spec: CLI-2
func TestValuesAreThoseOfKubernetes(t *testing.T) {
	get := front(t)
	theirs := ask[map[string]any](t, "openapi-values")
	seen := make(map[string]bool)
	for gv := range under(get("/openapi/v3"), "paths") {
		for name, schema := range under(get("/openapi/v3/"+gv), "components", "schemas") {
			for field, p := range under(schema, "properties") {
				path := name + "." + field
				if seen[path] {
					continue
				}
				ours := at(p, "enum")
				for _, inner := range []string{"items", "additionalProperties"} {
					if v := at(p, inner, "enum"); v != nil {
						ours = v
					}
				}
				if !reflect.DeepEqual(ours, theirs[path]) && (ours != nil || theirs[path] != nil) {
					t.Errorf("%s: Kubernetes %v, Monoplane %v", path, theirs[path], ours)
				}
				seen[path] = ours != nil
			}
		}
	}
	with := 0
	for _, ok := range seen {
		if ok {
			with++
		}
	}
	if with < 60 {
		t.Errorf("only %d fields with values", with)
	}
}

// Every operation that Kubernetes has on a kind that is served is served, too. spec: CLI-2
func TestOperationsOfKubernetesAreServed(t *testing.T) {
	get := front(t)
	for gv := range under(get("/openapi/v3"), "paths") {
		group, _, _ := strings.Cut(strings.TrimPrefix(gv, "apis/"), "/")
		if unlike[group] != "" {
			continue
		}
		ours := under(get("/openapi/v3/"+gv), "paths")
		theirs := ask[publishedGroup](t, "openapi", gv)
		kinds := make(map[any]bool) // that ours have something to do with
		for _, item := range ours {
			for _, op := range item.(map[string]any) {
				kinds[at(op, "x-kubernetes-group-version-kind", "kind")] = true
			}
		}
		for operation, op := range theirs.Operations {
			method, path, _ := strings.Cut(operation, " ")
			if !kinds[at(op, "x-kubernetes-group-version-kind", "kind")] {
				continue
			}
			if op["x-kubernetes-action"] == "watch" {
				continue // of one object, which a list with a field selector watches
			}
			if strings.Contains(path, "/nodes/{name}/proxy") && method != "get" {
				continue // agents answer questions, and take no orders from others than the server
			}
			if at(ours, path, method) == nil {
				t.Errorf("%s is missing", operation)
			}
		}
	}
}

// The document of v2 in protobuf is what the library of its clients makes of that in JSON. spec: CLI-2
func TestSwaggerIsTheMessageThatClientsRead(t *testing.T) {
	get := frontBytes(t)
	want, err := openapi_v2.ParseDocument(get("/openapi/v2", "application/json"))
	if err != nil {
		t.Fatal(err)
	}
	got := &openapi_v2.Document{}
	accept := "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	if err := proto.Unmarshal(get("/openapi/v2", accept), got); err != nil {
		t.Fatal(err)
	}
	arrange(t, want.ProtoReflect())
	arrange(t, got.ProtoReflect())
	if proto.Equal(want, got) {
		return
	}
	a, b := values(want.ProtoReflect()), values(got.ProtoReflect())
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("by the library %s, in protobuf %s", a[i], b[i])
		}
	}
	t.Fatalf("by the library %d values, in protobuf %d", len(a), len(b))
}

// arrange writes each value in YAML in one way, and leaves out the copies that the library makes of them.
func arrange(t *testing.T, m protoreflect.Message) {
	if a, ok := m.Interface().(*openapi_v2.Any); ok {
		text, err := yaml.YAMLToJSON([]byte(a.GetYaml()))
		if err != nil {
			t.Fatal(err)
		}
		a.Yaml, a.Value = string(text), nil
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				arrange(t, v.List().Get(i).Message())
			}
		case f.Message() != nil:
			arrange(t, v.Message())
		}
		return true
	})
}

// values lists the values of a message that are no messages, in the order of the fields.
func values(m protoreflect.Message) []string {
	var list []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case !m.Has(f):
		case f.IsList():
			for i := range m.Get(f).List().Len() {
				if v := m.Get(f).List().Get(i); f.Message() != nil {
					list = append(list, values(v.Message())...)
				} else {
					list = append(list, fmt.Sprintf("%s: %v", f.FullName(), v))
				}
			}
		case f.Message() != nil:
			list = append(list, values(m.Get(f).Message())...)
		default:
			list = append(list, fmt.Sprintf("%s: %v", f.FullName(), m.Get(f)))
		}
	}
	return list
}
