package discovery_test

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"testing"

	"monoplane.dev/apiserver/rest/discovery"
)

// A group with two versions prefers the first; a subresource of another group says so.
//
// spec: CLI-2
func TestVersionsAndForeignKinds(t *testing.T) {
	d, err := discovery.New([]discovery.Resource{
		{Group: "apps", Version: "v1", Name: "sets", Singular: "set", Namespaced: true, Kind: "Set", KindGroup: "apps",
			KindVersion: "v1", Verbs: []string{"get"}},
		{Group: "apps", Version: "v1", Name: "sets/scale", Namespaced: true, Kind: "Scale", KindGroup: "autoscaling",
			KindVersion: "v1", Verbs: []string{"get"}},
		{Group: "apps", Version: "v1beta1", Name: "sets", Singular: "set", Kind: "Set", KindGroup: "apps",
			KindVersion: "v1beta1", Verbs: []string{"get"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, accept string) map[string]any {
		t.Helper()
		if !d.Has(path) {
			t.Fatalf("no document %s", path)
		}
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		d.Serve(w, r, path)
		var v map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := get("/apis/apps", "")["preferredVersion"]; !reflect.DeepEqual(v,
		map[string]any{"groupVersion": "apps/v1", "version": "v1"}) {
		t.Errorf("preferred %v", v)
	}
	scale := get("/apis/apps/v1", "")["resources"].([]any)[1].(map[string]any)
	if scale["group"] != "autoscaling" || scale["version"] != "v1" || scale["kind"] != "Scale" {
		t.Errorf("scale %v", scale)
	}
	versions := get("/apis", discovery.AggregatedType)["items"].([]any)[0].(map[string]any)["versions"].([]any)
	first := versions[0].(map[string]any)["resources"].([]any)
	if len(versions) != 2 || len(first) != 1 {
		t.Fatalf("versions %v", versions)
	}
	set := first[0].(map[string]any)
	sub := set["subresources"].([]any)[0].(map[string]any)
	if set["scope"] != "Namespaced" || sub["subresource"] != "scale" ||
		sub["responseKind"].(map[string]any)["group"] != "autoscaling" {
		t.Errorf("set %v", set)
	}
	if other := versions[1].(map[string]any)["resources"].([]any)[0].(map[string]any); other["scope"] != "Cluster" {
		t.Errorf("v1beta1 %v", other)
	}
	if d.Has("/apis/batch") || d.Has("/apis/apps/v2") {
		t.Error("documents of groups that are not there")
	}
}
