package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"

	"monoplane.dev/apiserver/rest/compress"
)

const typeJSON = "application/json"

// document is an encoded document, compressed: there are megabytes of them, and few ask for them.
type document struct {
	packed            []byte
	hash, contentType string
}

func (d *Documents) newDocument(body []byte, contentType string) document {
	var packed bytes.Buffer
	// Nothing fails, because a buffer takes everything.
	if z, err := d.packers.Writer(&packed); err == nil {
		_, _ = z.Write(body)
		_ = z.Close()
	}
	sum := sha256.Sum256(body)
	return document{bytes.Clone(packed.Bytes()), strings.ToUpper(hex.EncodeToString(sum[:])), contentType}
}

// serve answers a GET or HEAD.
func (d document) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	etag := `"` + d.hash + `"`
	h.Set("Etag", etag)
	h.Add("Vary", "Accept-Encoding")
	if matches(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", d.contentType)
	packed := compress.Accepted(r)
	if packed {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(d.packed)))
	}
	switch {
	case r.Method == http.MethodHead:
	case packed:
		_, _ = w.Write(d.packed)
	default:
		// What newDocument has packed can be unpacked; an error here is of the client's connection.
		if z, err := gzip.NewReader(bytes.NewReader(d.packed)); err == nil {
			_, _ = io.Copy(w, z)
		}
	}
}

// matches says whether etag is one of those in a header If-None-Match.
func matches(header, etag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimSpace(part)
		if part == "*" || strings.TrimPrefix(part, "W/") == etag {
			return true
		}
	}
	return false
}

// accepts says whether the client takes one of the types.
func accepts(r *http.Request, types ...string) bool {
	headers := r.Header.Values("Accept")
	if len(headers) == 0 {
		return true
	}
	for _, header := range headers {
		for clause := range strings.SplitSeq(header, ",") {
			media, _, _ := strings.Cut(clause, ";")
			media = strings.ToLower(strings.TrimSpace(media))
			for _, t := range types {
				if media == t || media == "*/*" || media == "application/*" || header == "" {
					return true
				}
			}
		}
	}
	return false
}
