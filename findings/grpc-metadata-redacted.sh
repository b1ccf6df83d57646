#!/usr/bin/env bash
# Software: gRPC for Go 1.85.0 (google.golang.org/grpc/metadata)
# Guess: metadata is a map, so printing it, or logging it while debugging, shows its keys and values, and two that
#   differ print differently.
# Behaviour: metadata.MD has a String method that shows a few known headers and counts the rest, keys included, as
#   redacted; %v, %s, %+v and %q use it, and so do loggers that format their arguments. Ranging over the map, JSON
#   and a conversion to a plain map still show all.
# Seen:
#   %v: map[user-agent:[kubectl] <2 redacted>]
#   %v of another: map[user-agent:[kubectl] <2 redacted>]
#   equal text: true, equal metadata: false
#   slog: msg=call md="map[user-agent:[kubectl] <2 redacted>]"
#   JSON: {"resource-version":["7"],"tenant":["a"],"user-agent":["kubectl"]}
#   plain map: map[resource-version:[7] tenant:[a] user-agent:[kubectl]]
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
	google.golang.org/grpc v1.85.0
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"reflect"

	"google.golang.org/grpc/metadata"
)

func main() {
	a := metadata.Pairs("tenant", "a", "resource-version", "7", "user-agent", "kubectl")
	b := metadata.Pairs("tenant", "b", "request", "9", "user-agent", "kubectl")
	fmt.Printf("%%v: %v\n%%v of another: %v\n", a, b)
	fmt.Printf("equal text: %t, equal metadata: %t\n", fmt.Sprint(a) == fmt.Sprint(b), reflect.DeepEqual(a, b))
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
	fmt.Print("slog: ")
	slog.New(handler).Info("call", "md", a)
	text, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	fmt.Printf("JSON: %s\nplain map: %v\n", text, map[string][]string(a))
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
