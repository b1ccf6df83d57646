#!/usr/bin/env bash
# Software: client-go 0.36.3 (k8s.io/client-go/util/jsonpath, with missing keys allowed, as kubectl get -o jsonpath
#   calls it)
# Guess: a filter compares the numbers of a field with a literal, and a slice that goes beyond the end of a list is
#   what there is.
# Behaviour: numbers of a list of objects are int64 or float64, as each is written, and a literal is one of them too:
#   of a field that is 5 here and 5.5 there no comparison with any literal succeeds, but fails the whole template. A
#   slice beyond the end is an error as well. A filter on a field that some items do not have leaves these out, even
#   with !=.
# Seen:
#   {.items[?(@.size==5)].name}: error: incompatible types for comparison
#   {.items[?(@.size>5.0)].name}: error: incompatible types for comparison
#   {.items[?(@.replicas>5)].name}: c
#   {.items[?(@.replicas>5.0)].name}: error: incompatible types for comparison
#   {.items[1:9].name}: error: array index out of bounds: index 8, length 3
#   {.items[?(@.phase!="Running")].name}: b
set -euo pipefail
sed -n '/^# /s/^# //p' "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^# Seen:/,/^set/s/^#   //p' "$0" >"$dir/expected"
cd "$dir"
export GOWORK=off

cat >go.mod <<'EOF'
module finding

go 1.26

require (
	k8s.io/apimachinery v0.36.3
	k8s.io/client-go v0.36.3
	github.com/go-logr/logr v1.4.4 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

func main() {
	list := &unstructured.UnstructuredList{}
	err := list.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "example.com/v1", "kind": "Disk", "name": "a", "size": 5, "replicas": 3, "phase": "Running"},
		{"apiVersion": "example.com/v1", "kind": "Disk", "name": "b", "size": 5.5, "replicas": 5, "phase": "Failed"},
		{"apiVersion": "example.com/v1", "kind": "Disk", "name": "c", "size": 7, "replicas": 9}]}`))
	if err != nil {
		panic(err)
	}
	for _, template := range []string{
		`{.items[?(@.size==5)].name}`,
		`{.items[?(@.size>5.0)].name}`,
		`{.items[?(@.replicas>5)].name}`,
		`{.items[?(@.replicas>5.0)].name}`,
		`{.items[1:9].name}`,
		`{.items[?(@.phase!="Running")].name}`,
	} {
		path := jsonpath.New("finding").AllowMissingKeys(true)
		if err := path.Parse(template); err != nil {
			panic(err)
		}
		var out bytes.Buffer
		if err := path.Execute(&out, list.UnstructuredContent()); err != nil {
			fmt.Printf("%s: error: %v\n", template, err)
			continue
		}
		fmt.Printf("%s: %s\n", template, &out)
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
