package audit

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
)

// byMethod are the verbs of requests about one object or about a collection.
var byMethod = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// AttributesOf reads a request as Kubernetes does, from its method, path and query alone, so that a request for what
// does not exist is known, too. Group and version come first ("/api/v1", "/apis/apps/v1"), then perhaps "watch", then
// perhaps "namespaces" and a name, then the resource, the object's name and the subresource.
func AttributesOf(method string, u *url.URL) Attributes {
	a := Attributes{Verb: strings.ToLower(method), Path: u.Path}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 3 {
		return a
	}
	switch parts[0] {
	case "api":
		a.Version, parts = parts[1], parts[2:]
	case "apis":
		if len(parts) < 4 {
			return a
		}
		a.Group, a.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return a
	}
	a.Objects, a.Verb = true, byMethod[method]
	if parts[0] == "watch" && len(parts) > 1 {
		a.Verb, parts = "watch", parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		a.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Name = parts[1]
	}
	if len(parts) > 2 {
		a.Subresource = parts[2]
	}
	if a.Name == "" {
		a.collection(u)
	}
	return a
}

// collection finishes the attributes of a request about a collection. A list of one name is about that object.
func (a *Attributes) collection(u *url.URL) {
	switch a.Verb {
	case "get":
		a.Verb = "list"
		query := u.Query()
		if query.Has("watch") && query.Get("watch") != "0" && !strings.EqualFold(query.Get("watch"), "false") {
			a.Verb = "watch"
		}
		if selector, err := fields.ParseSelector(query.Get("fieldSelector")); err == nil {
			if name, one := selector.RequiresExactMatch("metadata.name"); one && len(content.IsPathSegmentName(name)) == 0 {
				a.Name = name
			}
		}
	case "delete":
		a.Verb = "deletecollection"
	}
}

// lasts says whether a request may last for hours, so that it is written when its answer begins.
func (a *Attributes) lasts() bool {
	switch a.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return a.Verb == "watch"
}
