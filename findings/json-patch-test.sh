#!/usr/bin/env bash
# Software: json-patch 4.13.0 (gopkg.in/evanphx/json-patch.v4, which applies Kubernetes' JSON patches)
# Guess: as RFC 6902 says, numbers are equal by value, an index is a number without sign and leading zeros, and a
#   test of what is not there fails.
# Behaviour: numbers are compared as they are spelled, so a test of 1.0 fails against 1; an index of -1 is the last
#   element, but for add the place behind it; 01 is taken for 1; and a test of a missing member for null passes.
# Seen:
#   test /a 1.0: testing value /a failed: test failed
#   test /a 1: {"a":1,"l":[1,2,3]}
#   test /missing null: {"a":1,"l":[1,2,3]}
#   remove /l/-1: {"a":1,"l":[1,2]}
#   add /l/-1 9: {"a":1,"l":[1,2,3,9]}
#   add /l/01 9: {"a":1,"l":[1,9,2,3]}
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

require gopkg.in/evanphx/json-patch.v4 v4.13.0
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func main() {
	for _, step := range []string{
		"test /a 1.0", "test /a 1", "test /missing null", "remove /l/-1", "add /l/-1 9", "add /l/01 9",
	} {
		words := append(strings.Fields(step), "null")
		patch, err := jsonpatch.DecodePatch(fmt.Appendf(nil, `[{"op": %q, "path": %q, "value": %s}]`,
			words[0], words[1], words[2]))
		if err != nil {
			panic(err)
		}
		result, err := patch.Apply([]byte(`{"a":1,"l":[1,2,3]}`))
		if err != nil {
			result = []byte(err.Error())
		}
		fmt.Printf("%s: %s\n", step, result)
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
