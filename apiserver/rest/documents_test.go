package rest_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/rest"
)

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// spec: CLI-2
func TestDiscovery(t *testing.T) {
	f := newFront(t)
	f.want(f.do("GET", "/api", ""), 200, `"kind":"APIVersions","versions":["v1"]`)
	f.want(f.do("GET", "/api/", ""), 200, `"kind":"APIVersions"`)
	f.want(f.do("GET", "/apis", ""), 200, `"name":"coordination.k8s.io"`,
		`"preferredVersion":{"groupVersion":"events.k8s.io/v1","version":"v1"}`)
	f.want(f.do("GET", "/apis/autoscaling", ""), 200,
		`"versions":[{"groupVersion":"autoscaling/v2","version":"v2"},{"groupVersion":"autoscaling/v1","version":"v1"}],`+
			`"preferredVersion":{"groupVersion":"autoscaling/v2","version":"v2"}`)
	f.want(f.do("GET", "/apis/coordination.k8s.io", ""), 200,
		`"kind":"APIGroup","apiVersion":"v1","name":"coordination.k8s.io"`)
	f.want(f.do("GET", "/apis/coordination.k8s.io/v1", ""), 200, `"groupVersion":"coordination.k8s.io/v1"`,
		`{"name":"leases","singularName":"lease","namespaced":true,"kind":"Lease"`)
	f.want(f.do("GET", "/api/v1", ""), 200, `"groupVersion":"v1"`,
		`{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["create","delete",`+
			`"deletecollection","get","list","patch","update","watch"],"shortNames":["po"],"categories":["all"]}`,
		`{"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]}`,
		`{"name":"pods/binding","singularName":"","namespaced":true,"kind":"Binding","verbs":["create"]}`,
		// By this kubectl drain knows that it can evict pods, and with which version. spec: DISR-3
		`{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction",`+
			`"verbs":["create"]}`)

	for _, path := range []string{"/api", "/apis"} {
		a := f.want(f.do("GET", path, "", "Accept", aggregated+",application/json;q=0.9"), 200,
			`"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2"`)
		if got := a.header.Get("Content-Type"); got != aggregated {
			t.Errorf("Content-Type %q", got)
		}
		etag := a.header.Get("Etag")
		if b := f.do("GET", path, "", "Accept", aggregated, "If-None-Match", etag); b.code != http.StatusNotModified ||
			b.body != "" {
			t.Errorf("%d %q", b.code, b.body)
		}
		if b := f.do("GET", path, "", "If-None-Match", etag); b.code != 200 {
			t.Errorf("the legacy document matched the tag of the aggregated one")
		}
	}
	f.want(f.do("GET", "/api", "", "Accept", aggregated), 200,
		`{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced",`+
			`"singularResource":"pod"`,
		`{"subresource":"status","responseKind":{"group":"","version":"v1","kind":"Pod"},"verbs":["get","patch","update"]}`)
}

// spec: CLI-2
func TestOpenAPI(t *testing.T) {
	f := newFront(t)
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(f.do("GET", "/openapi/v3", "").body), &index); err != nil {
		t.Fatal(err)
	}
	groups := map[string]bool{} // whether something in it can be patched
	for _, s := range services.All() {
		gv := s.Kind.APIVersion()
		groups[gv] = groups[gv] || slices.Contains(s.Methods(), "Patch")
	}
	if len(index.Paths) != len(groups) {
		t.Fatalf("index %v", index)
	}
	for gv, entry := range index.Paths {
		a := f.want(f.do("GET", entry.ServerRelativeURL+"&timeout=32s", ""), 200)
		var doc struct {
			Paths map[string]map[string]struct {
				GVK        map[string]string `json:"x-kubernetes-group-version-kind"`
				Action     string            `json:"x-kubernetes-action"`
				Parameters []struct{ In, Name string }
			}
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
			t.Fatal(err)
		}
		patches := 0
		for path, item := range doc.Paths {
			op, ok := item["patch"]
			if !ok {
				continue
			}
			if op.Action == "connect" {
				// Else kubectl would take it for the patch of an object, and believe that nothing is validated.
				if !strings.HasSuffix(op.GVK["kind"], "ProxyOptions") {
					t.Errorf("%s: PATCH through a proxy has kind %v", path, op.GVK)
				}
				continue
			}
			patches++
			validates := false
			for _, p := range op.Parameters {
				validates = validates || p.In == "query" && p.Name == "fieldValidation"
			}
			if op.GVK["kind"] == "" || !validates {
				t.Errorf("%s: PATCH has kind %v, fieldValidation %v", path, op.GVK, validates)
			}
		}
		_, version, _ := strings.Cut(gv, "/") // after "api" or "apis"
		if patchable, ok := groups[version]; !ok || patchable != (patches > 0) {
			t.Errorf("%s is known: %v; it has %d PATCH, %v", gv, ok, patches, patchable)
		}
		for _, ref := range references(a.body) {
			if doc.Components.Schemas[ref] == nil {
				t.Errorf("%s refers to %s, which it does not have", gv, ref)
			}
		}
	}
	// kubectl falls back to v2 for what cannot be patched. What it reads there is a message.
	f.want(f.do("GET", "/openapi/v2", ""), 200, `"swagger":"2.0"`, `"operationId":"readCoreV1NamespacedPodStatus"`)
	a := f.do("GET", "/openapi/v2", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if !strings.HasPrefix(a.body, "\n\x032.0\x12") || !strings.Contains(a.body, "\n\tMonoplane\x12") ||
		!strings.Contains(a.body, "readCoreV1NamespacedPodStatus") {
		t.Errorf("v2: %.100q", a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" {
		t.Errorf("v2: Content-Type %q", got)
	}
	f.want(f.do("GET", "/openapi/v3/apis/example.com/v1", ""), 404)
}

// What programs may keep of a document, and how it is sent to them. spec: CLI-2
func TestOpenAPIIsKept(t *testing.T) {
	f := newFront(t)
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	root := f.do("GET", "/openapi/v3", "")
	if err := json.Unmarshal([]byte(root.body), &index); err != nil {
		t.Fatal(err)
	}
	f.want(f.do("GET", "/openapi/v3", "", "If-None-Match", root.header.Get("Etag")), 304)
	url := index.Paths["api/v1"].ServerRelativeURL
	a := f.want(f.do("GET", url, ""), 200)
	if got := a.header.Get("Cache-Control"); got != "public, immutable, max-age=31536000" {
		t.Errorf("by its hash: Cache-Control %q", got)
	}
	if got := f.do("GET", "/openapi/v3/api/v1", "").header.Get("Cache-Control"); got != "no-cache, private" {
		t.Errorf("without its hash: Cache-Control %q", got)
	}
	moved := httptest.NewRecorder()
	f.h.ServeHTTP(moved, httptest.NewRequestWithContext(t.Context(), "GET", "/openapi/v3/api/v1?hash=OLD", nil))
	if moved.Code != http.StatusMovedPermanently || moved.Header().Get("Location") != url {
		t.Errorf("by another hash: %d, to %q", moved.Code, moved.Header().Get("Location"))
	}
	etag := a.header.Get("Etag")
	for _, tags := range []string{etag, `"x", ` + etag, "W/" + etag, "*"} {
		if b := f.do("GET", url, "", "If-None-Match", tags); b.code != http.StatusNotModified || b.body != "" {
			t.Errorf("If-None-Match %s: %d, %d bytes", tags, b.code, len(b.body))
		}
	}
	f.want(f.do("GET", url, "", "If-None-Match", `"x"`), 200)
	for _, path := range []string{url, "/openapi/v2"} {
		plain, packed := f.do("GET", path, ""), f.do("GET", path, "", "Accept-Encoding", "br;q=1, gzip")
		z, err := gzip.NewReader(strings.NewReader(packed.body))
		if err != nil || packed.header.Get("Content-Encoding") != "gzip" || plain.header.Get("Content-Encoding") != "" {
			t.Fatalf("%s: %v, Content-Encoding %q", path, err, packed.header.Get("Content-Encoding"))
		}
		if b, err := io.ReadAll(z); err != nil || string(b) != plain.body || len(packed.body) > len(b)/5 {
			t.Errorf("%s: %v, %d bytes of %d, of %d without gzip", path, err, len(packed.body), len(b), len(plain.body))
		}
		if b := f.do("GET", path, "", "Accept", "application/cbor"); b.code != http.StatusNotAcceptable {
			t.Errorf("%s in CBOR: %d", path, b.code)
		}
		if b := f.do("HEAD", path, ""); b.code != 200 || b.body != "" || b.header.Get("Etag") == "" {
			t.Errorf("HEAD %s: %d, %d bytes", path, b.code, len(b.body))
		}
	}
}

func references(body string) []string {
	var list []string
	for _, part := range strings.Split(body, `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func TestHealth(t *testing.T) {
	f := newFront(t)
	f.want(f.do("GET", "/livez", ""), 200, "ok")
	f.want(f.do("GET", "/healthz", ""), 200, "ok")
	f.want(f.do("GET", "/livez?verbose", ""), 200, "[+]ping ok\n[+]etcd ok\nlivez check passed\n")
	a := f.want(f.do("GET", "/readyz", ""), 500, "[+]etcd ok\n[-]node failed: reason withheld\nreadyz check failed\n")
	if strings.Contains(a.body, "secret") || !strings.Contains(f.log.String(), "secret reason") {
		t.Errorf("body %q, log %q", a.body, f.log)
	}
	f.want(f.do("GET", "/readyz?exclude=node", ""), 200, "ok")
	f.want(f.do("GET", "/readyz/etcd", ""), 200, "ok")
	f.want(f.do("GET", "/readyz/ping", ""), 200, "ok")
	f.want(f.do("GET", "/readyz/node", ""), 500)
	f.want(f.do("GET", "/readyz/other", ""), 404)
	f.want(f.do("GET", "/livezz", ""), 404)
}

func TestVersion(t *testing.T) {
	f := newFront(t)
	f.want(f.do("GET", "/version", ""), 200, `"major": "1"`, `"minor": "36"`, `"gitVersion": "v1.36.3+monoplane"`)
	if _, err := rest.New(rest.Config{}); err == nil {
		t.Error("an empty configuration was accepted")
	}
}
