// Package compress writes answers with gzip for clients that take it.
package compress

import (
	"net/http"
	"strconv"
	"strings"
)

// Accepted says whether the client takes an answer with gzip.
func Accepted(r *http.Request) bool {
	for _, header := range r.Header["Accept-Encoding"] {
		for clause := range strings.SplitSeq(header, ",") {
			if name, weight, _ := strings.Cut(clause, ";"); strings.TrimSpace(name) == "gzip" {
				_, q, _ := strings.Cut(weight, "=")
				n, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
				return err != nil || n > 0
			}
		}
	}
	return false
}
