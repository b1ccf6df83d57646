//go:build kubernetes

package oracle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sources returns a file of Kubernetes' sources.
func sources(t testing.TB, path ...string) []byte {
	list := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	dir, err := list.Output()
	if err != nil {
		t.Fatalf("where are the sources of Kubernetes? %v", err)
	}
	text, err := os.ReadFile(filepath.Join(append([]string{strings.TrimSpace(string(dir))}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// published returns a document of OpenAPI that Kubernetes publishes with its sources.
func published(t testing.TB, name string) map[string]any {
	var v map[string]any
	if err := json.Unmarshal(sources(t, "api", "openapi-spec", name), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func theirPublishedGroup(t testing.TB, gv string) publishedGroup {
	document := published(t, "v3/"+strings.ReplaceAll(gv, "/", "__")+"_openapi.json")
	out := publishedGroup{map[string]map[string]any{}, map[string]map[string]any{}}
	for name, schema := range under(document, "components", "schemas") {
		out.Schemas[name] = told(schema.(map[string]any))
	}
	for path, item := range under(document, "paths") {
		for method, op := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			operation := map[string]any{}
			for _, key := range operationKeys {
				if v := at(op, key); v != nil {
					operation[key] = v
				}
			}
			out.Operations[method+" "+path] = operation
		}
	}
	return out
}

// theirValues returns the values that fields may have, by the names of schema and field, from the code that is
// generated from Kubernetes' types: they are not in the documents that it publishes.
func theirValues(t testing.TB) map[string]any {
	function := regexp.MustCompile(`^func schema_k8sio_api_(\w+?)_(v\w+?)_(\w+)\(`)
	property := regexp.MustCompile(`^\t{5}"(\w+)": \{`)
	enum := regexp.MustCompile(`Enum: +\[\]interface\{\}\{(.*)\}`)
	all := make(map[string]any)
	var schema, field string
	lines := bytes.SplitSeq(sources(t, "pkg", "generated", "openapi", "zz_generated.openapi.go"), []byte("\n"))
	for line := range lines {
		if bytes.HasPrefix(line, []byte("func ")) {
			schema = ""
		}
		if m := function.FindSubmatch(line); m != nil {
			schema = fmt.Sprintf("io.k8s.api.%s.%s.%s", m[1], m[2], m[3])
		} else if m := property.FindSubmatch(line); m != nil {
			field = string(m[1])
		} else if m := enum.FindSubmatch(line); m != nil && schema != "" {
			var values []any
			if err := json.Unmarshal([]byte("["+string(m[1])+"]"), &values); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			all[schema+"."+field] = values
		}
	}
	return all
}
