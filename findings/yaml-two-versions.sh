#!/usr/bin/env bash
# Software: sigs.k8s.io/yaml 1.6.0 (kubectl, Helm, client-go) and, of npm, yaml 2.9.1 and js-yaml 5.5.0
#   (@kubernetes/client-node)
# Guess: what a YAML library of one language writes, the other reads back; a manifest that kubectl takes means the
#   same to a JavaScript client.
# Behaviour: Go's side reads YAML 1.1 and JavaScript's 1.2. A mode of 0400 in a manifest is 256 to kubectl and 400,
#   which is 0620, to a JavaScript client; and of strings that npm's yaml writes without quotes, being plain strings
#   to it, kubectl makes booleans and numbers, and of the key y the key true. js-yaml quotes them.
# Seen:
#   manifest defaultMode: 0400
#     sigs.k8s.io/yaml {"defaultMode":256}
#     js-yaml {"defaultMode":400}
#     yaml {"defaultMode":400}
#   strings {"y":"yes","size":"1_000","flags":"0b11","off":"NO"}
#     written by yaml, read by sigs.k8s.io/yaml {"false":false,"flags":3,"size":1000,"true":true}
#     written by js-yaml, read by sigs.k8s.io/yaml {"flags":"0b11","off":"NO","size":"1_000","y":"yes"}
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

require sigs.k8s.io/yaml v1.6.0
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(json))
}
EOF
cat >both.mjs <<'EOF'
import * as jsYaml from 'js-yaml'
import yaml from 'yaml'

const [action, library, text] = process.argv.slice(2)
const load = { 'js-yaml': jsYaml.load, yaml: yaml.parse }
const dump = { 'js-yaml': jsYaml.dump, yaml: yaml.stringify }
console.log(action === 'load' ? JSON.stringify(load[library](text)) : dump[library](JSON.parse(text)))
EOF
npm install --silent --no-audit --no-fund yaml@2.9.1 js-yaml@5.5.0
go build -mod=mod -o go-yaml .
{
	manifest='defaultMode: 0400'
	echo "manifest $manifest"
	echo "  sigs.k8s.io/yaml $(./go-yaml <<<"$manifest")"
	for library in js-yaml yaml; do echo "  $library $(node both.mjs load "$library" "$manifest")"; done
	strings='{"y":"yes","size":"1_000","flags":"0b11","off":"NO"}'
	echo "strings $strings"
	for library in yaml js-yaml; do
		echo "  written by $library, read by sigs.k8s.io/yaml $(node both.mjs dump "$library" "$strings" | ./go-yaml)"
	done
} >seen
diff expected seen && echo "Still so."
