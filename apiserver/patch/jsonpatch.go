package patch

import (
	"errors"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"monoplane.dev/apierrors"
)

// maxCopies bounds the copy operations in one patch. Each may double the document, and its size is checked
// after each, which costs an encoding.
const maxCopies = 64

func (p *Patch) checkOperations() error {
	ops, ok := p.tree.([]any)
	if !ok {
		return apierrors.New(apierrors.BadRequest, "error decoding patch: a patch of type %s must be a JSON array", JSON)
	}
	if len(ops) > MaxOperations {
		return apierrors.New(apierrors.RequestEntityTooLarge,
			"The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, len(ops))
	}
	copies := 0
	for i, o := range ops {
		if err := checkOperation(o); err != nil {
			return apierrors.New(apierrors.BadRequest, "error decoding patch: operation %d: %v", i, err)
		}
		if o.(map[string]any)["op"] == "copy" {
			copies++
		}
	}
	if copies > maxCopies {
		return apierrors.New(apierrors.RequestEntityTooLarge, "the allowed maximum of copy operations in a JSON patch is %d",
			maxCopies)
	}
	return nil
}

// checkOperation refuses what RFC 6902 does not define, so that the library sees only well-formed operations.
func checkOperation(o any) error {
	op, ok := o.(map[string]any)
	if !ok {
		return errors.New("must be a JSON object")
	}
	if err := pointer(op, "path"); err != nil {
		return err
	}
	switch op["op"] {
	case "remove":
		return nil
	case "move", "copy":
		return pointer(op, "from")
	case "add", "replace", "test":
		if _, ok := op["value"]; !ok {
			return errors.New("value is required")
		}
		return nil
	default:
		return fmt.Errorf("unknown op %v; must be one of add, copy, move, remove, replace, test", op["op"])
	}
}

func pointer(op map[string]any, field string) error {
	s, ok := op[field].(string)
	if !ok {
		return fmt.Errorf("%s is required", field)
	}
	if s != "" && s[0] != '/' {
		return fmt.Errorf("%s must be empty or begin with /", field)
	}
	return nil
}

// applyOperations applies a JSON Patch. An operation that does not fit the document is 422, as in Kubernetes.
func (p *Patch) applyOperations(doc []byte) (out []byte, err error) {
	defer func() {
		// The library has been seen to dereference nil on documents with nulls in odd places.
		if r := recover(); r != nil {
			out, err = nil, cannotApply(fmt.Errorf("%v", r))
		}
	}()
	ops, err := jsonpatch.DecodePatch(p.body)
	if err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "error decoding patch: %v", err)
	}
	for len(ops) > 0 {
		n := 0
		for n < len(ops) && ops[n].Kind() != "copy" {
			n++
		}
		n = min(n+1, len(ops))
		if doc, err = ops[:n].Apply(doc); err != nil {
			return nil, cannotApply(err)
		}
		if err := tooLarge(doc); err != nil {
			return nil, err
		}
		ops = ops[n:]
	}
	return doc, nil
}

func cannotApply(err error) error {
	return apierrors.New(apierrors.Invalid, "the server rejected our request due to an error in our request: %v", err)
}

// tests reports whether an operation tests that the field at path has the value.
func (p *Patch) tests(value string, path []string) bool {
	var want strings.Builder
	for _, name := range path {
		want.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	ops, _ := p.tree.([]any)
	for _, o := range ops {
		op, _ := o.(map[string]any)
		if op["op"] == "test" && op["path"] == want.String() && op["value"] == value {
			return true
		}
	}
	return false
}
