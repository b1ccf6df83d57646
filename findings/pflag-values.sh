#!/usr/bin/env bash
# Software: pflag 1.0.10 (github.com/spf13/pflag, the flags of kubectl, Helm, etcdctl and most of their kin)
# Guess: a number is decimal, in a list of numbers as alone; and a list of pairs is split at its commas, so the value
#   after a comma that is no pair is an error.
# Behaviour: a number alone is read as in Go source: 010 is eight and 1_000 a thousand, while in a list 010 is ten. A
#   map whose text has one = in all is not split: a=1,2 is the pair of a and "1,2", which ceases to be so as soon as
#   a second pair follows.
# Seen:
#   --replicas=010: replicas 8
#   --replicas=1_000: replicas 1000
#   --ports=010: ports [10]
#   --labels=a=1,2: labels {"a":"1,2"}
#   --labels=a=1,2,b=3: error: invalid argument "a=1,2,b=3" for "--labels" flag: 2 must be formatted as key=value
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

require github.com/spf13/pflag v1.0.10
EOF
cat >main.go <<'EOF'
package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/pflag"
)

func main() {
	for _, argument := range []string{
		"--replicas=010", "--replicas=1_000", "--ports=010", "--labels=a=1,2", "--labels=a=1,2,b=3",
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.SetOutput(nil)
		flags.Usage = func() {}
		values := map[string]any{
			"replicas": flags.Int("replicas", 0, ""),
			"ports":    flags.IntSlice("ports", nil, ""),
			"labels":   flags.StringToString("labels", nil, ""),
		}
		if err := flags.Parse([]string{argument}); err != nil {
			fmt.Printf("%s: error: %v\n", argument, err)
			continue
		}
		flags.Visit(func(f *pflag.Flag) {
			text, err := json.Marshal(values[f.Name])
			if err != nil {
				panic(err)
			}
			fmt.Printf("%s: %s %s\n", argument, f.Name, text)
		})
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
