package json

// Object is a message with a kind of its own.
type Object interface {
	Value
	// TypeMeta returns the apiVersion and kind.
	TypeMeta() (apiVersion, kind string)
}

// AppendObject appends the JSON form of o, beginning with kind and apiVersion.
func AppendObject(b []byte, o Object) []byte {
	b = appendTypeMeta(b, o)
	at := len(b)
	return splice(o.AppendJSON(b), at)
}

// AppendObjects appends a list of objects, each with its kind: one that is in no List of Kubernetes.
func AppendObjects[T Object](b []byte, list []T) []byte {
	b = append(b, '[')
	for i, o := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendObject(b, o)
	}
	return append(b, ']')
}

// AppendBody appends the JSON form of an object like o whose body, made by AppendJSON, is known. Only the
// kind of o is looked at.
func AppendBody(b []byte, o Object, body []byte) []byte {
	b = appendTypeMeta(b, o)
	at := len(b)
	return splice(append(b, body...), at)
}

// appendTypeMeta begins an object, up to before the comma or brace that follows.
func appendTypeMeta(b []byte, o Object) []byte {
	apiVersion, kind := o.TypeMeta()
	b = append(b, `{"kind":`...)
	b = AppendString(b, kind)
	b = append(b, `,"apiVersion":`...)
	return AppendString(b, apiVersion)
}

// splice joins the body that begins at b[at] to the type in front of it.
func splice(b []byte, at int) []byte {
	if b[at+1] == '}' {
		return append(b[:at], '}')
	}
	b[at] = ','
	return b
}
