#!/usr/bin/env bash
# Software: Prometheus client for Go 1.24.1 (github.com/prometheus/client_golang)
# Guess: names with dots are refused, as they were for years; or else a registry, a pedantic one at least, refuses
#   pod_count beside pod.count, since both are exposed as pod_count.
# Behaviour: both are registered, and a client that does not ask for escaping=allow-utf-8 gets dots as underscores:
#   two families of one name and two samples of one series, which is no valid exposition. The handler answers 200.
# Seen:
#   register pod.count: <nil>
#   register pod_count: <nil>
#   gather: 2 families, <nil>
#   status 200, content type text/plain; version=0.0.4; charset=utf-8; escaping=underscores
#   # HELP pod_count Of one library.
#   # TYPE pod_count gauge
#   pod_count 1
#   # HELP pod_count Of another.
#   # TYPE pod_count gauge
#   pod_count 2
#   with escaping=allow-utf-8: {"pod.count"} 1
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
	github.com/prometheus/client_golang v1.24.1
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func main() {
	registry := prometheus.NewPedanticRegistry()
	dots := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pod.count", Help: "Of one library."})
	underscores := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pod_count", Help: "Of another."})
	dots.Set(1)
	underscores.Set(2)
	fmt.Println("register pod.count:", registry.Register(dots))
	fmt.Println("register pod_count:", registry.Register(underscores))
	families, err := registry.Gather()
	fmt.Printf("gather: %d families, %v\n", len(families), err)

	scrape := func(accept string) *httptest.ResponseRecorder {
		request := httptest.NewRequest("GET", "/metrics", nil)
		request.Header.Set("Accept", accept)
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
		return answer
	}
	plain := scrape("text/plain")
	fmt.Printf("status %d, content type %s\n%s", plain.Code, plain.Header().Get("Content-Type"), plain.Body)
	for line := range strings.Lines(scrape("text/plain;version=1.0.0;escaping=allow-utf-8").Body.String()) {
		if strings.HasPrefix(line, "{") {
			fmt.Print("with escaping=allow-utf-8: ", line)
		}
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
