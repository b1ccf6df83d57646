#!/usr/bin/env bash
# Software: Prometheus client for Go 1.24.1 (github.com/prometheus/client_golang)
# Guess: the format that a scraper negotiates is a matter of syntax: the series and the types are the same in the
#   text format and, when the handler enables it, in OpenMetrics.
# Behaviour: a histogram's bucket of 1 is the series le="1" in one and le="1.0" in the other, so a change of Accept
#   ends one series and begins another. A counter whose name does not end in _total keeps its name but is of type
#   unknown in OpenMetrics. (Prometheus itself sends the Accept of OpenMetrics; curl does not.)
# Seen:
#   text: # TYPE restarts counter
#   text: wait_seconds_bucket{le="1"} 0
#   text: wait_seconds_bucket{le="2.5"} 0
#   text: wait_seconds_bucket{le="+Inf"} 0
#   OpenMetrics: # TYPE restarts unknown
#   OpenMetrics: wait_seconds_bucket{le="1.0"} 0
#   OpenMetrics: wait_seconds_bucket{le="2.5"} 0
#   OpenMetrics: wait_seconds_bucket{le="+Inf"} 0
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
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		prometheus.NewCounter(prometheus.CounterOpts{Name: "restarts", Help: "Restarts."}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "wait_seconds", Help: "Waits.", Buckets: []float64{1, 2.5}}),
	)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	for _, format := range []struct{ name, accept string }{
		{"text", "text/plain"}, {"OpenMetrics", "application/openmetrics-text;version=1.0.0"},
	} {
		request := httptest.NewRequest("GET", "/metrics", nil)
		request.Header.Set("Accept", format.accept)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		for line := range strings.Lines(answer.Body.String()) {
			if strings.Contains(line, "TYPE restarts") || strings.Contains(line, "_bucket") {
				fmt.Printf("%s: %s", format.name, line)
			}
		}
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
