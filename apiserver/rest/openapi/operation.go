package openapi

import (
	"net/http"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	optionsv1 "monoplane.dev/api/options/v1"
)

// action is what x-kubernetes-action calls what is done.
func (o Operation) action() string {
	switch {
	case o.Connects:
		return "connect"
	case o.Verb == "create":
		return "post"
	case o.Verb == "update":
		return "put"
	case o.Verb == "watch":
		return "watchlist"
	default:
		return o.Verb
	}
}

// about is the kind that an operation is about: for a connection that of its options, such as PodExecOptions.
func (o Operation) about() map[string]any {
	if !o.Connects {
		return gvk(o.Kind.Group, o.Kind.Version, o.Kind.Kind)
	}
	kind := o.Resource.Kind
	options := o.Resource.New().ProtoReflect().Descriptor().Options()
	k, _ := proto.GetExtension(options, optionsv1.E_Kind).(*optionsv1.Kind)
	for _, sub := range k.GetSubresources() {
		if sub.GetName() == o.Subresource {
			kind = sub.GetOptions()
		}
	}
	return gvk(o.Resource.Group, o.Resource.Version, kind)
}

func (o Operation) describe(s *schemas) map[string]any {
	op := map[string]any{
		"description":                     o.does(),
		"operationId":                     o.operationID(),
		"x-kubernetes-action":             o.action(),
		"x-kubernetes-group-version-kind": o.about(),
		"parameters":                      o.parameters(s.docs),
		"responses":                       o.responses(s),
	}
	switch {
	case o.Connects:
	case o.Method == http.MethodPatch:
		op["requestBody"] = map[string]any{"required": true, "content": content(s.patch(), negotiate.TypeJSONPatch,
			negotiate.TypeMergePatch, negotiate.TypeStrategicPatch, negotiate.TypeApplyPatch)}
	case o.Body != nil:
		op["requestBody"] = map[string]any{"required": true, "content": content(s.object(o.Body), "*/*")}
	case o.Method == http.MethodDelete:
		options := s.reference(new(metav1.DeleteOptions).ProtoReflect().Descriptor())
		op["requestBody"] = map[string]any{"content": content(options, "*/*")}
	}
	return op
}

// does says in a few words what the operation does.
func (o Operation) does() string {
	what := o.Resource.Kind
	if o.Subresource != "" {
		what = o.Subresource + " of a " + what
	}
	switch {
	case o.Connects:
		return "Connects to the " + what + "."
	case o.Verb == "get":
		return "Reads one object: " + what + "."
	case o.Verb == "list":
		return "Lists, or watches, objects: " + what + "."
	case o.Verb == "watch":
		return "Watches objects: " + what + ". A list with the parameter watch does the same."
	case o.Verb == "create":
		return "Creates one object: " + what + "."
	case o.Verb == "update":
		return "Replaces one object: " + what + "."
	case o.Verb == "patch":
		return "Changes one object, or applies it: " + what + "."
	case o.Verb == "deletecollection":
		return "Deletes all objects that the query selects: " + what + "."
	default:
		return "Deletes one object: " + what + "."
	}
}

func (o Operation) parameters(d docs) []any {
	list := []any{}
	add := func(in string, f protoreflect.FieldDescriptor) {
		p := map[string]any{"in": in, "name": string(f.Name()), "schema": parameterSchema(f)}
		if in == "path" {
			p["required"] = true
		}
		d.describe(p, f.FullName())
		list = append(list, p)
	}
	for _, f := range o.Variables {
		add("path", f)
	}
	for _, f := range o.Query {
		add("query", f)
	}
	if o.Watches {
		list = append(list, map[string]any{
			"in": "query", "name": "watch", "schema": map[string]any{"type": "boolean", "uniqueItems": true},
			"description": "Watch the objects for changes instead of listing them.",
		})
	}
	return list
}

// parameterSchema is the type of a parameter, without the size of numbers, of which Kubernetes says nothing here.
func parameterSchema(f protoreflect.FieldDescriptor) map[string]any {
	kind := "string"
	switch f.Kind() {
	case protoreflect.BoolKind:
		kind = "boolean"
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		kind = "integer"
	}
	return map[string]any{"type": kind, "uniqueItems": true}
}

// responses are the answers when all is well, by the code, and the one to those whom nobody knows. Every other failure
// is a Status.
func (o Operation) responses(s *schemas) map[string]any {
	all := map[string]any{"401": map[string]any{"description": "Unauthorized"}}
	ok := o.content(s)
	add := func(code, text string) { all[code] = map[string]any{"description": text, "content": ok} }
	switch {
	case o.Verb == "create" && !o.Connects:
		add("201", "Created")
	case o.Verb == "patch":
		add("200", "OK")
		add("201", "Created")
	default:
		add("200", "OK")
	}
	return all
}

// content is what an operation answers.
func (o Operation) content(s *schemas) map[string]any {
	types := []string{negotiate.TypeJSON, negotiate.TypeYAML, negotiate.TypeProtobuf}
	switch {
	case o.Connects:
		return content(map[string]any{"type": "string"}, "*/*")
	case o.Text:
		return content(map[string]any{"type": "string"}, "text/plain")
	case o.Verb == "watch":
		return content(s.watchEvent(), negotiate.TypeJSON, negotiate.TypeProtobufStream)
	case o.Verb == "list":
		if o.Watches {
			types = append(types, negotiate.TypeJSONStream, negotiate.TypeProtobufStream)
		}
		return content(s.list(o.Kind), types...)
	case o.Verb == "deletecollection":
		return content(s.reference(new(metav1.Status).ProtoReflect().Descriptor()), types...)
	default:
		return content(s.object(o.Kind), types...)
	}
}

// content is the same schema in each of some types.
func content(schema map[string]any, types ...string) map[string]any {
	all := make(map[string]any, len(types))
	for _, t := range types {
		all[t] = map[string]any{"schema": schema}
	}
	return all
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

// patch returns a reference to the schema of patches, of which there is nothing to say.
func (s *schemas) patch() map[string]any {
	return s.given("Patch", func() map[string]any {
		return map[string]any{"type": "object", "description": "A patch in the form that the content type names."}
	})
}

// watchEvent returns a reference to the schema of what watches answer, for which there is no message.
func (s *schemas) watchEvent() map[string]any {
	return s.given("WatchEvent", func() map[string]any {
		return map[string]any{
			"type": "object", "description": "One change of an object that is watched.",
			"required":                        []any{"type", "object"},
			"x-kubernetes-group-version-kind": []any{gvk("", "v1", "WatchEvent")},
			"properties": map[string]any{
				"type": map[string]any{
					"type":        "string",
					"description": "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.",
				},
				"object": map[string]any{
					"allOf":       []any{s.reference(new(metav1.RawExtension).ProtoReflect().Descriptor())},
					"description": "The object after the change, or before its deletion; a Status for an error.",
				},
			},
		}
	})
}
