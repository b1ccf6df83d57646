// Package openapi serves OpenAPI v3: an index on /openapi/v3 and one document per group and version, with
// what kubectl needs before it writes (which kinds can be patched, and that the server validates fields) and
// the schemas of all messages with their descriptions, for kubectl explain.
//
// The documents are derived from the protobuf descriptors, their options and the comments in the .proto files
// when they are first asked for, so that they cost nothing at start, and are always JSON. They describe; nothing
// is validated by them.
package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"monoplane.dev/object"
)

// Root is the path of the index.
const Root = "/openapi/v3"

// Operation is one method of one path.
type Operation struct {
	// Prefix is the path of the group and version, such as "/api/v1".
	Prefix string
	// Path is the template, such as "/api/v1/namespaces/{namespace}/pods".
	Path string
	// Method is the HTTP method, Verb the Kubernetes verb.
	Method, Verb string
	// Variables are the names of the variables in Path.
	Variables []string
	// Query are the names of the query parameters.
	Query []string
	// Kind is what the path is about.
	Kind *object.Kind
	// Body is the kind of the request body; nil for none and for patches and options.
	Body *object.Kind
	// Text says that the answer is plain text.
	Text bool
}

// Documents answers requests for the documents.
type Documents struct {
	operations []Operation
	prefixes   []string
	version    string
	build      func() map[string]document
}

type document struct {
	body, etag string
}

// New prepares documents for operations. Version is the version of the API server.
func New(operations []Operation, version string) *Documents {
	d := &Documents{operations: operations, version: version}
	seen := make(map[string]bool)
	for _, o := range operations {
		if !seen[o.Prefix] {
			seen[o.Prefix] = true
			d.prefixes = append(d.prefixes, o.Prefix)
		}
	}
	d.build = sync.OnceValue(d.documents)
	return d
}

// Has says whether path, which has no trailing slash, is that of a document.
func (d *Documents) Has(path string) bool {
	rest, ok := strings.CutPrefix(path, Root)
	if !ok {
		return false
	}
	for _, p := range d.prefixes {
		if rest == p {
			return true
		}
	}
	return rest == ""
}

// Serve answers a GET or HEAD for a path that Has knows.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, path string) {
	doc := d.build()[path]
	h := w.Header()
	h.Set("Etag", doc.etag)
	if r.Header.Get("If-None-Match") == doc.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(doc.body))
	}
}

func (d *Documents) documents() map[string]document {
	list := make(map[string]document, len(d.prefixes)+1)
	index := make(map[string]any, len(d.prefixes))
	descriptions := readDocs()
	for _, prefix := range d.prefixes {
		doc := encode(d.groupVersion(prefix, descriptions))
		list[Root+prefix] = doc
		index[strings.TrimPrefix(prefix, "/")] = map[string]string{
			"serverRelativeURL": Root + prefix + "?hash=" + strings.Trim(doc.etag, `"`),
		}
	}
	list[Root] = encode(map[string]any{"paths": index})
	return list
}

func encode(v map[string]any) document {
	body, err := json.Marshal(v)
	if err != nil {
		// The documents are made of maps, strings and numbers; a test encodes all of them.
		body = []byte("{}")
	}
	sum := sha256.Sum256(body)
	return document{string(body), `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
}

// groupVersion is the document of one group and version.
func (d *Documents) groupVersion(prefix string, descriptions docs) map[string]any {
	paths := make(map[string]any)
	s := &schemas{all: make(map[string]any), docs: descriptions}
	for _, o := range d.operations {
		if o.Prefix != prefix {
			continue
		}
		item, ok := paths[o.Path].(map[string]any)
		if !ok {
			item = make(map[string]any)
			paths[o.Path] = item
		}
		item[strings.ToLower(o.Method)] = o.describe(s)
	}
	return map[string]any{
		"openapi":    "3.0.0",
		"info":       map[string]any{"title": "Monoplane", "version": d.version},
		"paths":      paths,
		"components": map[string]any{"schemas": s.all},
	}
}
