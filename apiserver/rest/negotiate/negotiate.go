// Package negotiate chooses the form of a response from the Accept headers and recognises the form of a
// request body from its Content-Type, as Kubernetes clients use them.
//
// Accept headers may list alternatives with weights (q) and may ask for a transformation of the answer
// (as=Table, as=PartialObjectMetadata). Parsing never fails and never panics: what cannot be understood is
// skipped, and a header without any usable alternative is reported, so that the caller answers 406.
//
// The package knows media types only. It encodes nothing.
package negotiate

// Encoding is how a body is written.
type Encoding uint8

// The encodings.
const (
	JSON Encoding = iota
	YAML
	Protobuf
)

// The media types of bodies.
const (
	TypeJSON           = "application/json"
	TypeYAML           = "application/yaml"
	TypeProtobuf       = "application/vnd.kubernetes.protobuf"
	TypeJSONStream     = TypeJSON + ";stream=watch"
	TypeProtobufStream = TypeProtobuf + ";stream=watch"
)

// The media types of patches.
const (
	TypeJSONPatch      = "application/json-patch+json"
	TypeMergePatch     = "application/merge-patch+json"
	TypeStrategicPatch = "application/strategic-merge-patch+json"
	TypeApplyPatch     = "application/apply-patch+yaml"
)

// String returns the media type.
func (e Encoding) String() string {
	switch e {
	case YAML:
		return TypeYAML
	case Protobuf:
		return TypeProtobuf
	default:
		return TypeJSON
	}
}

// Form says what is made of an object before it is encoded.
type Form uint8

// The forms.
const (
	// Whole is the object itself.
	Whole Form = iota
	// Table is a meta.k8s.io/v1 Table with the columns that the server chose.
	Table
	// Metadata is a meta.k8s.io/v1 PartialObjectMetadata, or a list of them.
	Metadata
)

// Output is a negotiated form of response.
type Output struct {
	Encoding Encoding
	Form     Form
}

// ContentType returns the Content-Type of a response that is one body.
func (o Output) ContentType() string { return o.Encoding.String() }

// StreamContentType returns the Content-Type of a response that is a stream of watch events.
func (o Output) StreamContentType() string {
	if o.Encoding == Protobuf {
		return TypeProtobufStream
	}
	return TypeJSON
}
