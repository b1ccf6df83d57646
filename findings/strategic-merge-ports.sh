#!/usr/bin/env bash
# Software: Kubernetes 1.36.3 (k8s.io/apimachinery/pkg/util/strategicpatch, k8s.io/api 0.36.3)
# Guess: a strategic merge patch of a Service's ports finds the port by number and protocol, as server-side apply
#   does; a container that it adds comes last.
# Behaviour: it finds ports by number alone, so of DNS, 53 over UDP and over TCP, a patch for TCP changes the UDP
#   port into a second TCP one (which the server then refuses as a duplicate). And what a patch adds comes first: a
#   container that kubectl patch adds is the first container, the one that kubectl logs and exec choose.
# Seen:
#   ports: [{"name":"udp","port":53,"protocol":"TCP","targetPort":5353},{"name":"tcp","port":53,"protocol":"TCP"}]
#   containers: [{"name":"added"},{"name":"main"}]
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
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-openapi/jsonpointer v1.0.1 // indirect
	github.com/go-openapi/jsonreference v1.0.2 // indirect
	github.com/go-openapi/swag v0.29.2 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func main() {
	show("ports", corev1.Service{}, `[{"name": "udp", "port": 53, "protocol": "UDP"},
		{"name": "tcp", "port": 53, "protocol": "TCP"}]`, `[{"port": 53, "protocol": "TCP", "targetPort": 5353}]`)
	show("containers", corev1.Pod{}, `[{"name": "main"}]`, `[{"name": "added"}]`)
}

// show patches the list of the field of spec.
func show(field string, of any, list, patch string) {
	wrap := func(list string) []byte { return []byte(`{"spec": {"` + field + `": ` + list + `}}`) }
	merged, err := strategicpatch.StrategicMergePatch(wrap(list), wrap(patch), of)
	if err != nil {
		panic(err)
	}
	var object struct{ Spec map[string]json.RawMessage }
	if err := json.Unmarshal(merged, &object); err != nil {
		panic(err)
	}
	fmt.Printf("%s: %s\n", field, object.Spec[field])
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
