#!/usr/bin/env bash
# Software: Kubernetes 1.36.3 (k8s.io/apimachinery/pkg/apis/meta/v1, k8s.io/api/coordination/v1 0.36.3)
# Guess: the times of a Lease are RFC 3339, so any fraction of a second, or none, is understood, as in the times of
#   metadata.
# Behaviour: MicroTime (of Leases and Events) is decoded from exactly six digits: whole seconds, the milliseconds of
#   JavaScript's toISOString and the nanoseconds of Go's own time.Time are errors, while Time takes them all. A
#   client written in another language meets it at its first Lease.
# Seen:
#   2026-01-01T10:00:00Z: Time true, MicroTime false
#   2026-01-01T10:00:00.5Z: Time true, MicroTime false
#   2026-01-01T10:00:00.123Z: Time true, MicroTime false
#   2026-01-01T10:00:00.123456Z: Time true, MicroTime true
#   2026-01-01T10:00:00.123456+02:00: Time true, MicroTime true
#   2026-01-01T10:00:00.123456789Z: Time true, MicroTime false
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

	coordinationv1 "k8s.io/api/coordination/v1"
)

func main() {
	for _, at := range []string{
		"2026-01-01T10:00:00Z", "2026-01-01T10:00:00.5Z", "2026-01-01T10:00:00.123Z",
		"2026-01-01T10:00:00.123456Z", "2026-01-01T10:00:00.123456+02:00", "2026-01-01T10:00:00.123456789Z",
	} {
		decodes := func(object string) bool {
			var lease coordinationv1.Lease
			return json.Unmarshal(fmt.Appendf(nil, object, at), &lease) == nil
		}
		fmt.Printf("%s: Time %t, MicroTime %t\n", at,
			decodes(`{"metadata": {"creationTimestamp": %q}}`), decodes(`{"spec": {"renewTime": %q}}`))
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
