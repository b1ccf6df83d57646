#!/usr/bin/env bash
# Software: client-go 0.36.3 (k8s.io/client-go/dynamic/fake)
# Guess: a fake dynamic client that is given a Gateway, and told that the list kind of the resource "gateways" is
#   GatewayList, has the Gateway among "gateways".
# Behaviour: objects given at the start are put where the kind's name says, by rules of spelling in which every y
#   becomes ies: the Gateway is among "gatewaies", and "gateways" is empty, with no error. Created through the client
#   it is found. (The same guess turns Mesh into "meshs".)
# Seen:
#   given at the start: gateways 0, gatewaies 1
#   created through the client: gateways 1
#   guesses: Gateway gatewaies, Key keies, Mesh meshs, Policy policies
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
	k8s.io/api v0.36.3
	k8s.io/apimachinery v0.36.3
	k8s.io/client-go v0.36.3
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-openapi/jsonpointer v1.0.1 // indirect
	github.com/go-openapi/jsonreference v1.0.2 // indirect
	github.com/go-openapi/swag v0.29.2 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/oauth2 v0.36.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

var (
	ctx     = context.Background()
	group   = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
	gateway = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group.String(), "kind": "Gateway",
		"metadata": map[string]any{"name": "front", "namespace": "default"},
	}}
)

func client(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		group.WithResource("gateways"): "GatewayList", group.WithResource("gatewaies"): "GatewayList",
	}, objects...)
}

func count(c *fake.FakeDynamicClient, resource string) int {
	list, err := c.Resource(group.WithResource(resource)).Namespace("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	return len(list.Items)
}

func main() {
	given := client(gateway.DeepCopy())
	fmt.Printf("given at the start: gateways %d, gatewaies %d\n", count(given, "gateways"), count(given, "gatewaies"))
	empty := client()
	gateways := empty.Resource(group.WithResource("gateways")).Namespace("default")
	if _, err := gateways.Create(ctx, gateway, metav1.CreateOptions{}); err != nil {
		panic(err)
	}
	fmt.Println("created through the client: gateways", count(empty, "gateways"))
	var guesses []string
	for _, kind := range []string{"Gateway", "Key", "Mesh", "Policy"} {
		plural, _ := meta.UnsafeGuessKindToResource(group.WithKind(kind))
		guesses = append(guesses, kind+" "+plural.Resource)
	}
	fmt.Println("guesses:", strings.Join(guesses, ", "))
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
