// Package strictyaml reads configuration files, in YAML or JSON, of which nothing is ignored in silence: unknown and
// repeated fields and values of a wrong type are faults, each with file, line and path, and all of them are reported
// at once.
//
// Use: make a Report, read with Document, check what was read and Add what is wrong in it, then ask for Err.
package strictyaml

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document decodes the text, which must be one document of the kind, into what the pointer into shows to. It returns
// false when there is nothing to look at any further.
func (r *Report) Document(text []byte, kind string, into any) bool {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var n, more yaml.Node
	switch err := d.Decode(&n); {
	case errors.Is(err, io.EOF):
		r.At(1, "", "is empty, expected a %s", kind)
		return false
	case err != nil:
		r.syntax(err)
		return false
	}
	switch err := d.Decode(&more); {
	case err == nil:
		r.At(more.Line, "", "a second document, expected one %s", kind)
	case !errors.Is(err, io.EOF):
		r.syntax(err)
	}
	r.Root = n.Content[0]
	if r.Root.Kind != yaml.MappingNode {
		r.At(r.Root.Line, "", "is %s, expected a %s", found(r.Root), kind)
		return false
	}
	r.Decode(r.Root, "", into)
	return true
}

// syntax reports a text that is not YAML. The parser words its errors "yaml: line N: what".
func (r *Report) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if number, rest, ok := strings.Cut(strings.TrimPrefix(text, "line "), ": "); ok {
		if n, err := strconv.Atoi(number); err == nil {
			line, text = n, rest
		}
	}
	r.At(line, "", "is neither YAML nor JSON: %s", text)
}
