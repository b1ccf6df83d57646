package codec

import "monoplane.dev/codec/json"

// AppendObject appends the JSON form of o, beginning with kind and apiVersion. It writes no newline.
func AppendObject(b []byte, o Typed) []byte { return json.AppendObject(b, o) }

// AppendBody appends the JSON form of an object like o whose body, made by AppendJSON, is known. Only the
// kind of o is looked at.
func AppendBody(b []byte, o Typed, body []byte) []byte { return json.AppendBody(b, o, body) }

// DecodeObject reads JSON into o, which should be empty. Strict reports unknown and duplicate fields, as
// json.Decode does. The error says what is wrong with the text, with values, or with the kind.
func DecodeObject(data []byte, o Typed) (strict []string, err error) {
	d := json.NewDecoder(data)
	o.DecodeJSON(d)
	d.End()
	if err := d.Err(); err != nil {
		return nil, err
	}
	apiVersion, kind := d.TypeMeta()
	if err := matchKind(apiVersion, kind, o); err != nil {
		return nil, err
	}
	return d.Strict(), nil
}
