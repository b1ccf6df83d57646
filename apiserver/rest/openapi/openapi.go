// Package openapi serves OpenAPI: v3 as an index on /openapi/v3 and one document per group and version, v2 as one
// document of everything on /openapi/v2, in JSON and in the protobuf form that older tools ask for.
//
// The documents are derived from the protobuf descriptors, their options and the comments in the .proto files
// when they are first asked for, so that they cost nothing at start; from then on they are kept compressed, which is
// also how most clients take them. What they say is what Kubernetes' documents say of the same kinds: names of
// schemas and operations, types, formats, required fields, values, defaults, and how fields are patched and merged.
// They describe; nothing is validated by them.
package openapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apiserver/rest/compress"
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
	// Variables are the fields of the request that variables in Path fill, Query those that the query may set.
	Variables, Query []protoreflect.FieldDescriptor
	// Watches says that the query may also turn a list into a watch.
	Watches bool
	// Resource is the kind whose resource the path is of, Subresource the part of it; empty for all of it.
	Resource    *object.Kind
	Subresource string
	// Kind is what the path is about.
	Kind *object.Kind
	// Body is the kind of the request body; nil for none and for patches and options.
	Body *object.Kind
	// Text says that the answer is plain text, Connects that it is a connection of another protocol or what something
	// else answers.
	Text, Connects bool
}

// Documents answers requests for the documents.
type Documents struct {
	operations []Operation
	prefixes   []string
	version    string
	packers    compress.Pool
	v3         func() map[string]document
	v2         func() document
	v2Message  func() document
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
	d.v3 = sync.OnceValue(d.documents)
	d.v2 = sync.OnceValue(func() document { return d.encode(d.swagger()) })
	d.v2Message = sync.OnceValue(func() document { return d.newDocument(message(d.swagger()), v2Protobuf) })
	return d
}

// Has says whether path, which has no trailing slash, is that of a document of v3.
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

// Serve answers a GET or HEAD for a path that Has knows. A document that is asked for by its hash, as the index names
// it, may be kept for good.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, path string) {
	w.Header().Add("Vary", "Accept")
	if !accepts(r, typeJSON) {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	doc := d.v3()[path]
	if hash := r.URL.Query().Get("hash"); hash != "" && path != Root {
		if hash != doc.hash {
			http.Redirect(w, r, doc.url(path), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable, max-age=31536000")
	}
	doc.serve(w, r)
}

// url is the address of a document of one state.
func (d document) url(path string) string { return path + "?hash=" + url.QueryEscape(d.hash) }

func (d *Documents) documents() map[string]document {
	list := make(map[string]document, len(d.prefixes)+1)
	index := make(map[string]any, len(d.prefixes))
	descriptions := readDocs()
	for _, prefix := range d.prefixes {
		doc := d.encode(d.groupVersion(prefix, descriptions))
		list[Root+prefix] = doc
		index[strings.TrimPrefix(prefix, "/")] = map[string]string{"serverRelativeURL": doc.url(Root + prefix)}
	}
	list[Root] = d.encode(map[string]any{"paths": index})
	return list
}

func (d *Documents) encode(v map[string]any) document {
	body, err := json.Marshal(v)
	if err != nil {
		// The documents are made of maps, strings and numbers; a test encodes all of them.
		body = []byte("{}")
	}
	return d.newDocument(body, typeJSON)
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
		"openapi": "3.0.0",
		"info":    d.info(),
		"paths":   paths,
		"components": map[string]any{
			"schemas":         s.all,
			"securitySchemes": securitySchemes(),
		},
	}
}

func (d *Documents) info() map[string]any {
	return map[string]any{"title": "Monoplane", "version": d.version}
}

// securitySchemes says how clients show who they are, where it is not by a certificate.
func securitySchemes() map[string]any {
	return map[string]any{"BearerToken": map[string]any{
		"description": "A token of a service account.", "in": "header", "name": "authorization", "type": "apiKey",
	}}
}
