package rest_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
)

// Paths that are not as clients write them lead to nothing that exists, and to no panic.
func TestPathTricks(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	for _, path := range []string{
		pods + "/../pods/a", pods + "/%2e%2e/pods/a", pods + "/..%2fpods%2fa", pods + "//a", pods + "/a%00", pods + "/a%2f",
		"/api/v1//namespaces/default/pods/a", "/api/v1/namespaces//pods/a", "/apis//v1/pods", "/api/v1/../../metrics",
	} {
		if a := f.do("GET", path, ""); a.code != 404 && a.code != 400 {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	if a := f.do("GET", pods+"/a", ""); a.code != 200 {
		t.Errorf("the pod itself: %d %s", a.code, a.body)
	}
}

// Continue tokens of other servers, other lists and nobody are refused, and name nothing outside of the list.
func TestContinueTokensThatWereTamperedWith(t *testing.T) {
	f := newFront(t)
	for _, name := range []string{"a", "b", "c"} {
		f.createPod(name)
	}
	first := f.want(f.do("GET", pods+"?limit=1", ""), 200).object(t)
	token, _ := first["metadata"].(map[string]any)["continue"].(string)
	if token == "" {
		t.Fatalf("no token: %v", first)
	}
	plain, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"x", token[:len(token)/2], token + token, strings.Repeat("A", 8<<10),
		base64.RawURLEncoding.EncodeToString([]byte(`{}`)),
		base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(plain), `"a`, `"../secrets/a`))),
	} {
		f.want(f.do("GET", pods+"?limit=1&continue="+url.QueryEscape(bad), ""), 400, "the continue token is not valid")
	}
	other := "/api/v1/namespaces/default/configmaps?limit=1&continue=" + url.QueryEscape(token)
	f.want(f.do("GET", other, ""), 400, "the continue token is not valid")
}

// A selector that fills the header, which is bounded (TestNewServer), is one like any other.
func TestLongSelectors(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	in := "a in (" + strings.Repeat("x,", 20<<10) + "x)"
	a := f.want(f.do("GET", pods+"?labelSelector="+url.QueryEscape(in), ""), 200)
	if strings.Contains(a.body, `"name":"a"`) {
		t.Errorf("it selects %s", a.body)
	}
	f.want(f.do("GET", pods+"?fieldSelector="+url.QueryEscape(in), ""), 400, `"reason":"BadRequest"`)
}
