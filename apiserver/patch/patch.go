// Package patch applies patch documents to the JSON form of objects: JSON Patch (RFC 6902), JSON Merge Patch
// (RFC 7396) and the Strategic Merge Patch of Kubernetes (spec: OBJ-9).
//
// Guarantees: the arguments are never changed; the result depends on nothing but them; whatever a client
// sends gives a result or an error of package apierrors, in time and memory bounded by MaxBytes and MaxDepth.
// How lists merge in a strategic patch is read from the patchStrategy and patchMergeKey options of the
// messages (see Schema), so that a new kind needs nothing here.
//
// The package knows no objects: the caller encodes the live object, applies, decodes the result and judges it
// like an update. Server-side apply is none of these types: it goes by who owns what (package fieldmanager).
package patch

import (
	"monoplane.dev/apierrors"
)

// Type is the media type of a patch document.
type Type string

// The types of patches.
const (
	JSON      Type = "application/json-patch+json"
	Merge     Type = "application/merge-patch+json"
	Strategic Type = "application/strategic-merge-patch+json"
	Apply     Type = "application/apply-patch+yaml"
)

const (
	// MaxBytes is the largest patch, and the largest document that a patch may make.
	MaxBytes = 3 << 20
	// MaxDepth is the deepest nesting of a patch.
	MaxDepth = 256
	// MaxOperations is the most operations in a JSON Patch.
	MaxOperations = 10_000
)

// Patch is a patch document that has been read. It may be applied any number of times, concurrently.
type Patch struct {
	typ  Type
	body []byte
	tree any
	// duplicates are the paths of fields that the document holds twice.
	duplicates []string
}

// Parse reads a patch document. Errors: UnsupportedMediaType, RequestEntityTooLarge, BadRequest.
func Parse(t Type, body []byte) (*Patch, error) {
	switch t {
	case JSON, Merge, Strategic:
	default:
		return nil, apierrors.New(apierrors.UnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: %s, %s, %s, %s", JSON, Merge,
			Strategic, Apply)
	}
	if len(body) > MaxBytes {
		return nil, apierrors.New(apierrors.RequestEntityTooLarge, "the patch is larger than %d bytes", MaxBytes)
	}
	tree, duplicates, err := parse(body)
	if err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "error decoding patch: %v", err)
	}
	p := &Patch{typ: t, body: body, tree: tree, duplicates: duplicates}
	if t == JSON {
		return p, p.checkOperations()
	}
	if _, ok := tree.(map[string]any); !ok {
		return nil, apierrors.New(apierrors.BadRequest, "error decoding patch: a patch of type %s must be a JSON object", t)
	}
	return p, nil
}

// Duplicates returns the paths of fields that the document holds more than once; of these the last counts.
func (p *Patch) Duplicates() []string { return p.duplicates }

// Apply returns doc, which must be a JSON object, as the patch leaves it. schema is that of the kind.
func (p *Patch) Apply(doc []byte, schema *Schema) ([]byte, error) {
	if p.typ == JSON {
		return p.applyOperations(doc)
	}
	live, _, err := parse(doc)
	if err != nil {
		return nil, apierrors.NewInternal(err)
	}
	var out any
	if p.typ == Merge {
		out = mergeJSON(live, p.tree)
	} else {
		m := merger{}
		original, _ := live.(map[string]any)
		out, err = m.mergeMap(original, clone(p.tree).(map[string]any), schema)
		if err != nil {
			return nil, apierrors.New(apierrors.BadRequest, "error applying strategic merge patch: %v", err)
		}
	}
	b, err := encode(out)
	if err != nil {
		return nil, apierrors.NewInternal(err)
	}
	return b, tooLarge(b)
}

func tooLarge(doc []byte) error {
	if len(doc) > MaxBytes {
		return apierrors.New(apierrors.RequestEntityTooLarge, "the patched object is larger than %d bytes", MaxBytes)
	}
	return nil
}

// Carries reports whether the patch itself states the string value at the path, so that it can only mean an
// object that has it: by a merged field, or by a test operation.
func (p *Patch) Carries(value string, path ...string) bool {
	if p.typ == JSON {
		return p.tests(value, path)
	}
	at := p.tree
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return false
		}
		at = m[name]
	}
	s, ok := at.(string)
	return ok && s == value
}
