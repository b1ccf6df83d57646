#!/usr/bin/env bash
# Software: Kubernetes 1.36.3 (k8s.io/apimachinery 0.36.3: pkg/labels, pkg/fields)
# Guess: label selectors and field selectors are one language but for the operators: spaces around = mean nothing,
#   and a comma at the end is refused.
# Behaviour: a field selector keeps spaces as parts of the field's name and of its value: status.phase = Running asks
#   for a field "status.phase ", which a server does not know, and metadata.name= web for " web", which none has. It
#   takes commas at either end, which labels refuse. A label selector has "in ()" select the empty value alone, not
#   nothing.
# Seen:
#   labels "phase = Running": key "phase", value "Running"
#   fields "phase = Running": key "phase ", value " Running"
#   labels "phase=Running,": found '', expected: identifier after ','
#   fields "phase=Running,": key "phase", value "Running"
#   labels "phase in ()": selects "Running" false, selects "" true, selects none false
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
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func main() {
	for _, text := range []string{"phase = Running", "phase=Running,"} {
		fmt.Printf("labels %q: ", text)
		if byLabel, err := labels.Parse(text); err != nil {
			fmt.Println(strings.TrimSuffix(err.Error(), ":"))
		} else {
			all, _ := byLabel.Requirements()
			fmt.Printf("key %q, value %q\n", all[0].Key(), all[0].ValuesUnsorted()[0])
		}
		byField, err := fields.ParseSelector(text)
		if err != nil {
			panic(err)
		}
		all := byField.Requirements()
		fmt.Printf("fields %q: key %q, value %q\n", text, all[0].Field, all[0].Value)
	}
	text := "phase in ()"
	none, err := labels.Parse(text)
	if err != nil {
		panic(err)
	}
	fmt.Printf("labels %q: selects \"Running\" %t, selects \"\" %t, selects none %t\n", text,
		none.Matches(labels.Set{"phase": "Running"}), none.Matches(labels.Set{"phase": ""}), none.Matches(labels.Set{}))
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
