package openapi

import (
	"net/http"

	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/object"
)

// actions are what x-kubernetes-action calls the verbs.
func action(verb string) string {
	switch verb {
	case "create":
		return "post"
	case "update":
		return "put"
	default:
		return verb
	}
}

func (o Operation) describe(s *schemas) map[string]any {
	op := map[string]any{
		"x-kubernetes-action":             action(o.Verb),
		"x-kubernetes-group-version-kind": gvk(o.Kind.Group, o.Kind.Version, o.Kind.Kind),
		"parameters":                      o.parameters(),
		"responses":                       map[string]any{"200": o.response(s)},
	}
	switch {
	case o.Method == http.MethodPatch:
		op["requestBody"] = patchBody()
	case o.Body != nil:
		op["requestBody"] = map[string]any{"content": jsonContent(s.object(o.Body))}
	case o.Method == http.MethodDelete:
		op["requestBody"] = map[string]any{"content": jsonContent(s.named("monoplane.meta.v1.DeleteOptions"))}
	}
	return op
}

// patchBody lists the patch types. Strategic merge is listed: the schemas carry the strategies and merge keys.
func patchBody() map[string]any {
	content := make(map[string]any)
	for _, t := range []string{negotiate.TypeJSONPatch, negotiate.TypeMergePatch, negotiate.TypeStrategicPatch} {
		content[t] = map[string]any{"schema": map[string]any{"type": "object"}}
	}
	return map[string]any{"content": content}
}

func (o Operation) parameters() []any {
	list := []any{}
	add := func(in, name string, required bool) {
		p := map[string]any{"in": in, "name": name, "schema": map[string]any{"type": "string", "uniqueItems": true}}
		if required {
			p["required"] = true
		}
		list = append(list, p)
	}
	for _, name := range o.Variables {
		add("path", name, true)
	}
	for _, name := range o.Query {
		add("query", name, false)
	}
	if o.Verb == "list" {
		add("query", "watch", false)
	}
	return list
}

func (o Operation) response(s *schemas) map[string]any {
	if o.Text {
		return map[string]any{"description": "OK", "content": map[string]any{
			"text/plain": map[string]any{"schema": map[string]any{"type": "string"}},
		}}
	}
	var schema map[string]any
	switch o.Verb {
	case "list", "deletecollection":
		schema = s.list(o.Kind)
	case "watch":
		schema = s.named("monoplane.meta.v1.WatchEvent")
	default:
		schema = s.object(o.Kind)
	}
	return map[string]any{"description": "OK", "content": jsonContent(schema)}
}

func jsonContent(schema map[string]any) map[string]any {
	return map[string]any{negotiate.TypeJSON: map[string]any{"schema": schema}}
}

func gvk(group, version, kind string) map[string]any {
	return map[string]any{"group": group, "version": version, "kind": kind}
}

// object returns a reference to the schema of a kind.
func (s *schemas) object(k *object.Kind) map[string]any {
	return s.reference(k.New().ProtoReflect().Descriptor())
}

// list returns a reference to the schema of a kind's list.
func (s *schemas) list(k *object.Kind) map[string]any {
	return s.reference(k.NewList(nil, nil).ProtoReflect().Descriptor())
}
