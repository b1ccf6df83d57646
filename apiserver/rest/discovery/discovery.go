// Package discovery serves the documents by which Kubernetes clients learn which resources exist: the legacy
// ones (/api, /apis, /api/v1, /apis/GROUP, /apis/GROUP/VERSION) and the aggregated ones of
// apidiscovery.k8s.io/v2 on /api and /apis.
//
// All documents are encoded once, when the handler is made, and carry an ETag, so that clients that cache
// them (kubectl does) get a 304. They are always JSON, which every client reads.
package discovery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Resource describes one resource or, with a slash in its name, one subresource.
type Resource struct {
	// Group and Version are those of the path; Group is empty for the core group.
	Group, Version string
	// Name is the plural, such as "pods" or "pods/log".
	Name string
	// Singular is the name for one object; empty for subresources.
	Singular string
	// Namespaced says whether the path names a namespace.
	Namespaced bool
	// Kind is the kind of the objects, which may be of another group and version than the path.
	Kind, KindGroup, KindVersion string
	// Verbs are what can be done, such as "get" and "deletecollection".
	Verbs []string
	// ShortNames and Categories are what kubectl accepts instead of the name.
	ShortNames, Categories []string
}

type document struct {
	body, etag, contentType string
}

// Documents answers requests for discovery documents.
type Documents struct {
	legacy     map[string]document
	aggregated map[string]document
}

// AggregatedType is the Content-Type of the aggregated documents.
const AggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// New makes the documents for resources. Groups and resources are listed in the order in which they come; of the
// versions of a group the most stable and newest is the preferred one, and the first.
func New(resources []Resource) (*Documents, error) {
	d := &Documents{legacy: make(map[string]document), aggregated: make(map[string]document)}
	tree := arrange(resources)
	var err error
	put := func(to map[string]document, path, contentType string, v any) {
		body, encodeErr := json.Marshal(v)
		if encodeErr != nil {
			err = fmt.Errorf("encode discovery document %s: %w", path, encodeErr)
			return
		}
		sum := sha256.Sum256(body)
		to[path] = document{string(body) + "\n", `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`, contentType}
	}
	put(d.legacy, "/api", "application/json", coreVersions(tree))
	put(d.legacy, "/apis", "application/json", groupList(tree))
	put(d.aggregated, "/api", AggregatedType, aggregate(tree, true))
	put(d.aggregated, "/apis", AggregatedType, aggregate(tree, false))
	for _, g := range tree {
		if g.name != "" {
			put(d.legacy, "/apis/"+g.name, "application/json", g.legacy(true))
		}
		for _, v := range g.versions {
			put(d.legacy, v.path(), "application/json", v.legacy())
		}
	}
	return d, err
}

// Has says whether path, which has no trailing slash, is that of a document.
func (d *Documents) Has(path string) bool {
	_, ok := d.legacy[path]
	return ok
}

// Serve answers a GET or HEAD for a path that Has knows.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, path string) {
	doc := d.legacy[path]
	if a, ok := d.aggregated[path]; ok {
		w.Header().Add("Vary", "Accept")
		if wantsAggregated(r.Header.Values("Accept")) {
			doc = a
		}
	}
	h := w.Header()
	h.Set("Etag", doc.etag)
	if r.Header.Get("If-None-Match") == doc.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", doc.contentType)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(doc.body))
	}
}

// wantsAggregated says whether one of the alternatives is the aggregated document.
func wantsAggregated(accept []string) bool {
	for _, header := range accept {
		for clause := range strings.SplitSeq(header, ",") {
			var as, group, version bool
			for param := range strings.SplitSeq(clause, ";") {
				switch strings.ReplaceAll(param, " ", "") {
				case "as=APIGroupDiscoveryList":
					as = true
				case "g=apidiscovery.k8s.io":
					group = true
				case "v=v2":
					version = true
				}
			}
			if as && group && version {
				return true
			}
		}
	}
	return false
}

// Paths returns the paths of all documents.
func (d *Documents) Paths() []string { return slices.Sorted(maps.Keys(d.legacy)) }
