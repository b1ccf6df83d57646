#!/usr/bin/env bash
# Software: Kubernetes 1.36.3 (k8s.io/apimachinery/pkg/util/wait 0.36.3)
# Guess: a Backoff with Steps 10 and a Cap makes ten attempts, the waits between the last ones being the Cap.
# Behaviour: as soon as the next wait would exceed the Cap, no steps are left: the program still waits once, but the
#   attempt after that is not made. So a Cap meant to keep waits short makes the code give up early, after 2 or 3
#   attempts of 10 here. With a Factor of 1, or without a Cap, all are made.
# Seen:
#   Steps 10, Duration 1ms, Factor 2, Cap 0s: 10 attempts
#   Steps 10, Duration 1ms, Factor 2, Cap 4ms: 3 attempts
#   Steps 10, Duration 1ms, Factor 2, Cap 3ms: 2 attempts
#   Steps 10, Duration 1ms, Factor 1, Cap 3ms: 10 attempts
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
	github.com/go-logr/logr v1.4.4 // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func main() {
	for _, b := range []wait.Backoff{
		{Steps: 10, Duration: time.Millisecond, Factor: 2},
		{Steps: 10, Duration: time.Millisecond, Factor: 2, Cap: 4 * time.Millisecond},
		{Steps: 10, Duration: time.Millisecond, Factor: 2, Cap: 3 * time.Millisecond},
		{Steps: 10, Duration: time.Millisecond, Factor: 1, Cap: 3 * time.Millisecond},
	} {
		attempts := 0
		err := wait.ExponentialBackoff(b, func() (bool, error) { attempts++; return false, nil })
		if !wait.Interrupted(err) {
			panic(err)
		}
		fmt.Printf("Steps %d, Duration %v, Factor %v, Cap %v: %d attempts\n",
			b.Steps, b.Duration, b.Factor, b.Cap, attempts)
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
