package openapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file writes the document of v2 as the message openapi.v2.Document of gnostic, for which programs older than
// OpenAPI v3 ask. The message has some sixty types, and its library would be a megabyte of the program; what our
// document contains needs these few. A test reads the bytes with that library and compares.

// The numbers of the fields that are written, by message.
const (
	documentSwagger, documentInfo, documentPaths, documentDefinitions = 1, 2, 8, 9
	documentSecurity, documentSecurityDefinitions                     = 12, 13
	infoTitle, infoVersion                                            = 1, 2
	pathsPath                                                         = 2
	operationDescription, operationID, operationProduces              = 3, 5, 6
	operationConsumes, operationParameters, operationResponses        = 7, 8, 9
	operationSchemes, operationExtension                              = 10, 13
	bodyName, bodyIn, bodyRequired, bodySchema                        = 2, 3, 4, 5
	parameterRequired, parameterIn, parameterDescription              = 1, 2, 3
	parameterName                                                     = 4
	responseDescription, responseSchema                               = 1, 2
	schemaRef, schemaFormat, schemaDescription, schemaDefault         = 1, 2, 4, 5
	schemaRequired, schemaEnum, schemaAdditional, schemaType          = 19, 20, 21, 22
	schemaItems, schemaProperties, schemaExtension                    = 23, 25, 31
	anyYAML                                                           = 2
	keyType, keyName, keyIn, keyDescription                           = 1, 2, 3, 4
	// In messages that are a list, a named value, or one of several things.
	first, name, value = 1, 1, 2
)

// methods are the fields of an item of paths.
var methods = map[string]protowire.Number{
	"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8,
}

// buffer is a message that is being written.
type buffer []byte

// message encodes a document of v2.
func message(v2 map[string]any) []byte {
	var b buffer
	b.text(documentSwagger, v2["swagger"])
	info := v2["info"].(map[string]any)
	b.message(documentInfo, func(b *buffer) {
		b.text(infoTitle, info["title"])
		b.text(infoVersion, info["version"])
	})
	b.message(documentPaths, func(b *buffer) {
		b.named(pathsPath, v2["paths"].(map[string]any), pathItem)
	})
	b.message(documentDefinitions, func(b *buffer) {
		b.named(first, v2["definitions"].(map[string]any), schema)
	})
	for _, one := range v2["security"].([]any) {
		b.message(documentSecurity, func(b *buffer) {
			b.named(first, one.(map[string]any), func(*buffer, any) {})
		})
	}
	b.message(documentSecurityDefinitions, func(b *buffer) {
		b.named(first, v2["securityDefinitions"].(map[string]any), func(b *buffer, v any) {
			const apiKey = 2
			b.message(apiKey, func(b *buffer) {
				key := v.(map[string]any)
				b.text(keyType, key["type"])
				b.text(keyName, key["name"])
				b.text(keyIn, key["in"])
				b.text(keyDescription, key["description"])
			})
		})
	})
	return b
}

func pathItem(b *buffer, v any) {
	for method, op := range sorted(v.(map[string]any)) {
		b.message(methods[method], func(b *buffer) { operation(b, op.(map[string]any)) })
	}
}

func operation(b *buffer, op map[string]any) {
	b.text(operationDescription, op["description"])
	b.text(operationID, op["operationId"])
	b.texts(operationProduces, op["produces"])
	b.texts(operationConsumes, op["consumes"])
	for _, p := range op["parameters"].([]any) {
		b.message(operationParameters, func(b *buffer) {
			b.message(first, func(b *buffer) { parameter(b, p.(map[string]any)) })
		})
	}
	b.message(operationResponses, func(b *buffer) {
		b.named(first, op["responses"].(map[string]any), func(b *buffer, v any) {
			b.message(first, func(b *buffer) {
				r := v.(map[string]any)
				b.text(responseDescription, r["description"])
				if s := r["schema"]; s != nil {
					b.message(responseSchema, func(b *buffer) {
						b.message(first, func(b *buffer) { schema(b, s) })
					})
				}
			})
		})
	})
	b.texts(operationSchemes, op["schemes"])
	b.extensions(operationExtension, op)
}

// parameter writes one that is the body, or one of path or query.
func parameter(b *buffer, p map[string]any) {
	const body, other = 1, 2
	if p["in"] == "body" {
		b.message(body, func(b *buffer) {
			b.text(bodyName, p["name"])
			b.text(bodyIn, p["in"])
			b.flag(bodyRequired, p["required"])
			b.message(bodySchema, func(b *buffer) { schema(b, p["schema"]) })
		})
		return
	}
	// Parameters of the query have one field more in the middle than those of the path.
	place, kind, unique := protowire.Number(4), protowire.Number(5), protowire.Number(19)
	if p["in"] == "query" {
		place, kind, unique = 3, 6, 20
	}
	b.message(other, func(b *buffer) {
		b.message(place, func(b *buffer) {
			b.flag(parameterRequired, p["required"])
			b.text(parameterIn, p["in"])
			b.text(parameterDescription, p["description"])
			b.text(parameterName, p["name"])
			b.text(kind, p["type"])
			b.flag(unique, p["uniqueItems"])
		})
	})
}

func schema(b *buffer, v any) {
	s := v.(map[string]any)
	b.text(schemaRef, s["$ref"])
	b.text(schemaFormat, s["format"])
	b.text(schemaDescription, s["description"])
	if v, ok := s["default"]; ok {
		b.any(schemaDefault, v)
	}
	b.texts(schemaRequired, s["required"])
	if list, ok := s["enum"].([]any); ok {
		for _, v := range list {
			b.any(schemaEnum, v)
		}
	}
	if v, ok := s["additionalProperties"]; ok {
		b.message(schemaAdditional, func(b *buffer) {
			b.message(first, func(b *buffer) { schema(b, v) })
		})
	}
	if v, ok := s["type"]; ok {
		b.message(schemaType, func(b *buffer) { b.text(first, v) })
	}
	if v, ok := s["items"]; ok {
		b.message(schemaItems, func(b *buffer) {
			b.message(first, func(b *buffer) { schema(b, v) })
		})
	}
	if v, ok := s["properties"].(map[string]any); ok {
		b.message(schemaProperties, func(b *buffer) { b.named(first, v, schema) })
	}
	b.extensions(schemaExtension, s)
}

// text writes a string, if there is one.
func (b *buffer) text(field protowire.Number, v any) {
	if s, ok := v.(string); ok && s != "" {
		*b = protowire.AppendString(protowire.AppendTag(*b, field, protowire.BytesType), s)
	}
}

// texts writes a list of strings, if there is one.
func (b *buffer) texts(field protowire.Number, v any) {
	list, _ := v.([]any)
	for _, s := range list {
		b.text(field, s)
	}
}

// flag writes a boolean that is set.
func (b *buffer) flag(field protowire.Number, v any) {
	if v == true {
		*b = protowire.AppendVarint(protowire.AppendTag(*b, field, protowire.VarintType), 1)
	}
}

// message writes a message with what fill writes.
func (b *buffer) message(field protowire.Number, fill func(*buffer)) {
	var inner buffer
	fill(&inner)
	*b = protowire.AppendBytes(protowire.AppendTag(*b, field, protowire.BytesType), inner)
}

// named writes the entries of a map, which are messages of a name and a value each.
func (b *buffer) named(field protowire.Number, entries map[string]any, fill func(*buffer, any)) {
	for key, v := range sorted(entries) {
		b.message(field, func(b *buffer) {
			b.text(name, key)
			b.message(value, func(b *buffer) { fill(b, v) })
		})
	}
}

// any writes a value as YAML, of which JSON is a part.
func (b *buffer) any(field protowire.Number, v any) {
	text, err := json.Marshal(v)
	if err != nil { // as in encode
		return
	}
	b.message(field, func(b *buffer) { b.text(anyYAML, string(text)) })
}

// extensions writes what the specification leaves to others.
func (b *buffer) extensions(field protowire.Number, entries map[string]any) {
	for key, v := range sorted(entries) {
		if !strings.HasPrefix(key, "x-") {
			continue
		}
		b.message(field, func(b *buffer) {
			b.text(name, key)
			b.any(value, v)
		})
	}
}

// sorted goes through a map in the order of its keys, so that the same document has the same bytes.
func sorted(m map[string]any) func(func(string, any) bool) {
	return func(yield func(string, any) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}
