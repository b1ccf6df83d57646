package rest_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Who reads with the eyes gets lines: with curl, a browser, or ?pretty. What is said is the same.
func TestPretty(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	for _, path := range []string{pods + "/a", pods, pods + "/absent"} {
		for _, c := range []struct {
			query, agent, accept string
			lines                bool
		}{
			{agent: "kubectl/v1.36.3", lines: false},
			{agent: "curl/8.14.1", lines: true},
			{agent: "Wget/1.25", lines: true},
			{agent: "Mozilla/5.0 (X11; Linux x86_64)", lines: true},
			{agent: "curl/8.14.1", query: "?pretty=false", lines: false},
			{agent: "curl/8.14.1", query: "?pretty=nonsense", lines: false},
			{agent: "x", query: "?pretty=true", lines: true},
			{agent: "x", query: "?limit=5&pretty=1", lines: true},
			{agent: "x", query: "?pretty=", lines: false},
			{agent: "curl/8.14.1", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", lines: true},
		} {
			if c.accept == "" {
				c.accept = "application/json"
			}
			a := f.do("GET", path+c.query, "", "User-Agent", c.agent, "Accept", c.accept)
			if lines := strings.Count(a.body, "\n") > 1; lines != c.lines {
				t.Errorf("%s%s for %q: %.100s", path, c.query, c.agent, a.body)
			}
			plain := f.do("GET", path+"?pretty=false", "", "Accept", c.accept)
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(a.body)); err != nil {
				t.Errorf("%s%s: %v", path, c.query, err)
			} else if compact.String() != strings.TrimSuffix(plain.body, "\n") {
				t.Errorf("%s%s says something else:\n%s\n%s", path, c.query, compact.String(), plain.body)
			}
		}
	}
	a := f.do("GET", pods+"/a?pretty=true", "", "Accept", "application/yaml")
	if !strings.HasPrefix(a.body, "apiVersion:") {
		t.Errorf("YAML: %.100s", a.body)
	}
	w := f.watch(t, pods+"?watch=true&pretty=true", "")
	if e := w.next(); e.Object.Metadata.Name != "a" {
		t.Errorf("watch: %+v", e)
	}
}
