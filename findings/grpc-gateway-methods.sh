#!/usr/bin/env bash
# Software: gRPC-Gateway 2.32.0 (github.com/grpc-ecosystem/grpc-gateway/v2/runtime)
# Guess: a mux with one GET route answers HEAD like GET, as net/http does, and answers other methods, POST among
#   them, with 405 and Allow.
# Behaviour: other methods, HEAD and OPTIONS included, get 501 without Allow, which health checkers and proxies take
#   for a broken server. A POST of a form, as curl -d sends by default, reaches the handler of GET, its body being
#   parameters; WithDisablePathLengthFallback ends that.
# Seen:
#   GET: 200, Allow ""
#   HEAD: 501, Allow ""
#   OPTIONS: 501, Allow ""
#   DELETE: 501, Allow ""
#   POST of application/json: 501, Allow ""
#   POST of application/x-www-form-urlencoded: 200, Allow ""
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
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.32.0
	golang.org/x/net v0.62.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261019180522-ce908d29299b // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
	google.golang.org/grpc v1.85.0 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
)

func main() {
	mux := runtime.NewServeMux()
	err := mux.HandlePath("GET", "/v1/pods/{name}", func(http.ResponseWriter, *http.Request, map[string]string) {})
	if err != nil {
		panic(err)
	}
	for _, call := range []struct{ method, contentType string }{
		{"GET", ""}, {"HEAD", ""}, {"OPTIONS", ""}, {"DELETE", ""},
		{"POST", "application/json"}, {"POST", "application/x-www-form-urlencoded"},
	} {
		request := httptest.NewRequest(call.method, "/v1/pods/web", strings.NewReader("{}"))
		what := call.method
		if call.contentType != "" {
			request.Header.Set("Content-Type", call.contentType)
			what += " of " + call.contentType
		}
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, request)
		fmt.Printf("%s: %d, Allow %q\n", what, answer.Code, answer.Header().Get("Allow"))
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
