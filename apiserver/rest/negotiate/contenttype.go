package negotiate

import "strings"

// mediaType returns a Content-Type without its parameters, in lower case.
func mediaType(header string) string {
	media, _, _ := strings.Cut(header, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// Body recognises the Content-Type of an object in a request body. An absent one means JSON. It returns
// false for every other type, so that the caller answers 415.
func Body(header string) (Encoding, bool) {
	switch mediaType(header) {
	case "", TypeJSON:
		return JSON, true
	case TypeYAML:
		return YAML, true
	case TypeProtobuf:
		return Protobuf, true
	default:
		return JSON, false
	}
}

// Patch recognises the Content-Type of a patch and returns it without parameters. It returns false for
// every other type, so that the caller answers 415.
func Patch(header string) (string, bool) {
	switch t := mediaType(header); t {
	case TypeJSONPatch, TypeMergePatch, TypeStrategicPatch, TypeApplyPatch:
		return t, true
	default:
		return "", false
	}
}
