package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apiserver/rest/discovery"
	"monoplane.dev/apiserver/rest/openapi"
	"monoplane.dev/apiserver/tokens"
	"monoplane.dev/object"
)

// resources describes what the routes serve, for discovery: resources in alphabetical order, each followed by
// its subresources.
func resources(routes []*route) []discovery.Resource {
	byName := make(map[string]*discovery.Resource)
	var list []*discovery.Resource
	for _, r := range routes {
		name := r.resource
		if r.subresource != "" {
			name += "/" + r.subresource
		}
		id := r.prefix + "/" + name
		d := byName[id]
		if d == nil {
			kind := r.kind()
			group, version := r.groupVersion()
			d = &discovery.Resource{
				Group: group, Version: version, Name: name,
				Kind: kind.Kind, KindGroup: kind.Group, KindVersion: kind.Version,
			}
			if r.subresource == "" {
				d.Singular, d.ShortNames, d.Categories = kind.Singular, kind.ShortNames, kind.Categories
			}
			byName[id] = d
			list = append(list, d)
		}
		d.Namespaced = d.Namespaced || r.namespaced
		if !slices.Contains(d.Verbs, r.verb) {
			d.Verbs = append(d.Verbs, r.verb)
		}
	}
	slices.SortStableFunc(list, func(a, b *discovery.Resource) int {
		return strings.Compare(a.Group+"/"+a.Version+"/"+a.Name, b.Group+"/"+b.Version+"/"+b.Name)
	})
	out := make([]discovery.Resource, len(list))
	for i, d := range list {
		slices.Sort(d.Verbs)
		out[i] = *d
	}
	return out
}

// operations describes the routes for OpenAPI.
func operations(routes []*route) []openapi.Operation {
	list := make([]openapi.Operation, 0, len(routes))
	for _, r := range routes {
		o := openapi.Operation{
			Prefix: r.prefix, Path: strings.ReplaceAll(r.template, "=**}", "}"), Method: r.method, Verb: r.verb,
			Variables: r.variables, Query: r.queryFields(), Watches: r.watch != nil,
			Resource: r.service.Kind, Subresource: r.subresource, Kind: r.kind(), Body: r.bodyKind(),
			Text: r.text, Connects: r.conversation != nil || r.typed,
		}
		if r.subresource == "" && r.resource != r.service.Kind.Plural {
			o.Resource = r.kind() // a path of a subresource's own, such as that of Bindings
		}
		list = append(list, o)
		if r.proxies && r.method == http.MethodGet {
			// The methods that no rule can name, which pass by this route (see serveResource).
			for _, method := range []string{http.MethodHead, http.MethodOptions} {
				o.Method = method
				list = append(list, o)
			}
		}
	}
	return list
}

// queryFields returns what the query may set of the request, in the order of the names.
func (r *route) queryFields() []protoreflect.FieldDescriptor {
	var list []protoreflect.FieldDescriptor
	fields := r.input.Descriptor().Fields()
	for _, name := range slices.Sorted(maps.Keys(r.query)) {
		list = append(list, fields.ByName(protoreflect.Name(name)))
	}
	return list
}

// kind returns the kind that a path is about: that of the body where the path takes another one than the resource's (a
// Binding), that of the answer where a subresource is read as another one (a Scale), that of its options where it is
// talked with (a PodExecOptions), else the resource's.
func (r *route) kind() *object.Kind {
	if r.options != nil {
		return r.options
	}
	if k := r.bodyKind(); k != nil {
		return k
	}
	if r.subresource != "" && (r.verb == "get" || r.verb == "patch") {
		if o, ok := r.output.Zero().Interface().(object.Object); ok {
			return o.ObjectKind()
		}
	}
	return r.service.Kind
}

func (r *route) groupVersion() (group, version string) {
	parts := strings.Split(r.prefix, "/")
	if len(parts) == 4 {
		return parts[2], parts[3]
	}
	return "", parts[2]
}

// serveIndex lists the paths that are not objects.
func (h *Handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	paths := append([]string{"/healthz", "/livez", "/readyz", "/version", openapi.V2Path, openapi.Root},
		h.discovery.Paths()...)
	for path := range h.cfg.Paths {
		if !strings.HasSuffix(path, "/") {
			paths = append(paths, path)
		}
	}
	if h.cfg.OpenID != nil {
		paths = append(paths, tokens.ConfigurationPath, tokens.KeysPath)
	}
	slices.Sort(paths)
	b, err := json.MarshalIndent(map[string][]string{"paths": paths}, "", "  ")
	if err != nil {
		h.writeError(w, r, fmt.Errorf("encode the index: %w", err))
		return
	}
	h.serveBytes(w, r, "application/json", append(b, '\n'))
}
