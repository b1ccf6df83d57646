#!/usr/bin/env bash
# Software: Helm 4.3.2 (helm.sh/helm/v4/pkg/strvals, which reads --set)
# Guess: --set reads a value as YAML does, so that --set cpu=1.5 is what "cpu: 1.5" in a file of values is: a number.
# Behaviour: only whole decimal numbers without leading zeros become numbers: 1.5 and 1e3 are strings, so a chart
#   whose values.schema.json says "type": "number" takes 2 and refuses 1.5, which it takes from a file; --set-json
#   takes it too. True and TRUE are booleans in both.
# Seen:
#   cpu=2: --set int64, --set-json float64, file float64
#   cpu=1.5: --set string, --set-json float64, file float64
#   cpu=1e3: --set string, --set-json float64, file float64
#   cpu=True: --set bool, file bool
#   cpu=yes: --set string, file bool
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
	helm.sh/helm/v4 v4.3.2
	sigs.k8s.io/yaml v1.6.0
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, pair := range []string{"cpu=2", "cpu=1.5", "cpu=1e3", "cpu=True", "cpu=yes"} {
		set, err := strvals.Parse(pair)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: --set %T, ", pair, set["cpu"])
		if asJSON := map[string]any{}; strvals.ParseJSON(pair, asJSON) == nil {
			fmt.Printf("--set-json %T, ", asJSON["cpu"])
		}
		var file map[string]any
		if err := yaml.Unmarshal([]byte(strings.Replace(pair, "=", ": ", 1)), &file); err != nil {
			panic(err)
		}
		fmt.Printf("file %T\n", file["cpu"])
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
