package openapi

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// V2Path is the path of the document of OpenAPI v2. It describes nothing. It is there because kubectl asks for it when
// the one of v3 does not say that a kind can be patched, and creates nothing of such a kind (a PlacementReview, a
// Binding) without it.
const V2Path = "/openapi/v2"

// v2Accepted is what kubectl accepts, v2Protobuf what it then gets: the first is no valid type in a header.
const (
	v2Accepted = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	v2Protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// ServeV2 answers a GET or HEAD for V2Path.
func (d *Documents) ServeV2(w http.ResponseWriter, r *http.Request) {
	title := "Monoplane"
	body, contentType := encode(map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": title, "version": d.version}, "paths": map[string]any{},
	}).body, "application/json"
	if strings.Contains(r.Header.Get("Accept"), v2Accepted) {
		body, contentType = v2Message(title, d.version), v2Protobuf
	}
	w.Header().Set("Content-Type", contentType)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body))
	}
}

// v2Message is the document as a message openapi.v2.Document.
func v2Message(title, version string) string {
	const document, info, paths = 1, 2, 8
	text := func(b []byte, field protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
	}
	b := text(nil, document, "2.0")
	b = text(b, info, string(text(text(nil, 1, title), 2, version)))
	return string(text(b, paths, ""))
}
