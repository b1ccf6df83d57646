package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"monoplane.dev/apiserver/rest/negotiate"
)

// pretty says whether a person reads the answer: the query says so (?pretty=true), or else the client is one that
// people use by hand. As in Kubernetes such answers are indented when they are JSON, and watches never are.
func pretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty=") {
		if says := r.URL.Query().Get("pretty"); says != "" {
			yes, err := strconv.ParseBool(says)
			return yes && err == nil
		}
	}
	agent := r.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// pretty says whether the answer is to be indented.
func (ex *exchange) pretty() bool {
	return ex.out.Encoding == negotiate.JSON && ex.route.stream == nil && pretty(ex.r)
}

// indented returns JSON with a line for each value, or b when it is none.
func indented(b []byte) []byte {
	var out bytes.Buffer
	out.Grow(2 * len(b))
	if json.Indent(&out, b, "", "  ") != nil {
		return b
	}
	return out.Bytes()
}
