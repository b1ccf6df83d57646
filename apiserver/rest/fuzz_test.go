package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// FuzzRequest sends anything to the front. Whatever comes, it answers, without a panic, and refusals are
// Statuses.
//
// spec: OBJ-3, OBJ-15
func FuzzRequest(f *testing.F) {
	front := newFront(f)
	front.createPod("a")
	f.Add("GET", pods, "watch=1&timeoutSeconds=1", "application/json", "", "")
	f.Add("POST", pods, "fieldValidation=Strict&dryRun=All", "*/*", "application/json", pod)
	f.Add("POST", pods, "", "application/yaml", "application/yaml", "metadata: &a {name: *a}")
	f.Add("PATCH", pods+"/a", "force=true", asTable, "application/merge-patch+json", `{"a":null}`)
	f.Add("DELETE", pods+"/a", "gracePeriodSeconds=x", "", "", `{"preconditions":{}}`)
	f.Add("GET", "/openapi/v3/api/v1", "hash=%", "a/b;q=", "", "")
	f.Add("PUT", "/api/v1/namespaces/x/finalize", "%zz=;", "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x02")
	f.Add("GET", "/readyz/../x", "verbose&exclude=etcd", "", "", "")
	f.Add("GET", "/apis//v1", "", "", "", "")
	f.Fuzz(func(t *testing.T, method, path, query, accept, contentType, body string) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		r := httptest.NewRequest("GET", "/", strings.NewReader(body)).WithContext(ctx)
		r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
		r.Header.Set("Accept", accept)
		r.Header.Set("Content-Type", contentType)
		front.log.Reset()
		w := httptest.NewRecorder()
		front.h.ServeHTTP(w, r)
		if strings.Contains(front.log.String(), "panic") {
			t.Fatalf("panic: %s", front.log)
		}
		if w.Code < 400 || method == http.MethodHead || w.Header().Get("Content-Type") != "application/json" {
			return
		}
		var st struct{ Kind, Status string }
		if err := json.Unmarshal(w.Body.Bytes(), &st); err != nil || st.Kind != "Status" || st.Status != "Failure" {
			t.Errorf("%d without a Status: %q", w.Code, w.Body)
		}
	})
}
