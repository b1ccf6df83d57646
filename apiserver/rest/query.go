package rest

import (
	"net/url"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apierrors"
)

// parameter says how a query parameter is read.
type parameter uint8

const (
	scalar parameter = iota
	boolean
	repeated
)

// parametersOf lists the parameters that the query may set: the scalar fields of the request message, except
// those that the path or the body names. Only these reach the gateway, which would otherwise let the query
// set any field, such as the namespace of a list over all namespaces.
func parametersOf(r *route) map[string]parameter {
	fields := r.input.Descriptor().Fields()
	list := make(map[string]parameter, fields.Len())
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		switch {
		case name == "namespace", name == "name", name == "patchType", f == r.body, f == r.whole:
		case f.Kind() == protoreflect.MessageKind, f.Kind() == protoreflect.BytesKind, f.IsMap():
		case f.IsList():
			list[name] = repeated
		case f.Kind() == protoreflect.BoolKind:
			list[name] = boolean
		default:
			list[name] = scalar
		}
	}
	return list
}

// parseQuery reads the query of a URL; nil when there is none.
func parseQuery(raw string) (url.Values, error) {
	if raw == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "the query of the URL is malformed: %v", err)
	}
	return q, nil
}

// form keeps what the route's request message takes of a query and writes it as the gateway reads it. As in
// Kubernetes the first of several values counts, unknown parameters are ignored, and a boolean is true unless
// it is "false" or "0".
func (r *route) form(query url.Values) url.Values {
	if len(query) == 0 {
		return nil
	}
	form := make(url.Values, len(query))
	for name, list := range query {
		how, ok := r.query[name]
		if !ok || len(list) == 0 {
			continue
		}
		switch how {
		case boolean:
			form[name] = []string{boolText(list[0])}
		case repeated:
			form[name] = list
		default:
			if list[0] != "" {
				form[name] = list[:1:1]
			}
		}
	}
	return form
}

func boolText(s string) string {
	if isTrue(s) {
		return "true"
	}
	return "false"
}

// isTrue reads a boolean of a query as Kubernetes does.
func isTrue(s string) bool { return s != "0" && !strings.EqualFold(s, "false") }
