package openapi

import (
	"net/http"
	"slices"
	"strings"
)

// V2Path is the path of the document of OpenAPI v2.
const V2Path = "/openapi/v2"

// v2Accepted is what kubectl accepts, v2Protobuf what it then gets: the first is no valid type in a header.
const (
	v2Accepted = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	v2Protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// ServeV2 answers a GET or HEAD for V2Path.
func (d *Documents) ServeV2(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	switch accept := r.Header.Get("Accept"); {
	case strings.Contains(accept, v2Accepted), strings.Contains(accept, v2Protobuf):
		d.v2Message().serve(w, r)
	case accepts(r, typeJSON):
		d.v2().serve(w, r)
	default:
		w.WriteHeader(http.StatusNotAcceptable)
	}
}

// definitionPath comes before the names of schemas in references of v2.
const definitionPath = "#/definitions/"

// swagger is the document of v2: the documents of v3 together, in its words.
func (d *Documents) swagger() map[string]any {
	descriptions := readDocs()
	paths, definitions := make(map[string]any), make(map[string]any)
	for _, prefix := range d.prefixes {
		v3 := d.groupVersion(prefix, descriptions)
		for path, item := range v3["paths"].(map[string]any) {
			out := make(map[string]any)
			for method, op := range item.(map[string]any) {
				out[method] = operationV2(op.(map[string]any))
			}
			paths[path] = out
		}
		for name, s := range v3["components"].(map[string]any)["schemas"].(map[string]any) {
			if definitions[name] == nil {
				definitions[name] = schemaV2(s.(map[string]any))
			}
		}
	}
	return map[string]any{
		"swagger": "2.0", "info": d.info(), "paths": paths, "definitions": definitions,
		"securityDefinitions": securitySchemes(),
		"security":            []any{map[string]any{"BearerToken": []any{}}},
	}
}

// operationV2 rewrites an operation: v2 has the body among the parameters, and the types of bodies for all answers
// together.
func operationV2(v3 map[string]any) map[string]any {
	op := make(map[string]any, len(v3)+3)
	for key, value := range v3 {
		if key != "requestBody" {
			op[key] = value
		}
	}
	parameters := []any{}
	for _, p := range v3["parameters"].([]any) {
		flat := make(map[string]any)
		for key, value := range p.(map[string]any) {
			if key != "schema" {
				flat[key] = value
				continue
			}
			for k, v := range value.(map[string]any) {
				flat[k] = v
			}
		}
		parameters = append(parameters, flat)
	}
	consumes := []any{"*/*"}
	if body, ok := v3["requestBody"].(map[string]any); ok {
		types, schema := contentV2(body)
		consumes = types
		p := map[string]any{"in": "body", "name": "body", "schema": schema}
		if body["required"] == true {
			p["required"] = true
		}
		parameters = append(parameters, p)
	}
	responses := make(map[string]any)
	for code, response := range v3["responses"].(map[string]any) {
		in := response.(map[string]any)
		out := map[string]any{"description": in["description"]}
		if types, schema := contentV2(in); schema != nil {
			op["produces"], out["schema"] = types, schema
		}
		responses[code] = out
	}
	op["parameters"], op["responses"], op["consumes"] = parameters, responses, consumes
	op["schemes"] = []any{"https"}
	return op
}

// contentV2 returns the types of a body, and the schema that they have in common; nil for no body.
func contentV2(v3 map[string]any) (types []any, schema map[string]any) {
	content, _ := v3["content"].(map[string]any)
	names := make([]string, 0, len(content))
	for name, one := range content {
		names = append(names, name)
		schema = schemaV2(one.(map[string]any)["schema"].(map[string]any))
	}
	slices.Sort(names) // JSON comes first, of those of objects
	for _, name := range names {
		types = append(types, name)
	}
	return types, schema
}

// schemaV2 rewrites a schema: v2 knows no alternatives, so that what is one of several types is a string, and has
// descriptions beside references.
func schemaV2(v3 map[string]any) map[string]any {
	out := make(map[string]any, len(v3))
	for key, value := range v3 {
		switch key {
		case "$ref":
			out[key] = definitionPath + strings.TrimPrefix(value.(string), schemaPath)
		case "allOf":
			out["$ref"] = schemaV2(value.([]any)[0].(map[string]any))["$ref"]
		case "oneOf":
			out["type"] = "string"
		case "items", "additionalProperties":
			out[key] = schemaV2(value.(map[string]any))
		case "properties":
			properties := make(map[string]any)
			for name, p := range value.(map[string]any) {
				properties[name] = schemaV2(p.(map[string]any))
			}
			out[key] = properties
		default:
			out[key] = value
		}
	}
	return out
}
