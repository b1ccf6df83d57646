package configfile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Fault is one thing that is wrong in a configuration.
type Fault struct {
	File string
	Line int
	// Path is the field, such as profiles[0].schedulerName; empty when the fault is not one field's.
	Path string
	// Text says what was wrong and what was expected.
	Text string
}

// Error is FILE:LINE: path: what was wrong.
func (f Fault) Error() string {
	if f.Path == "" {
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Path, f.Text)
}

// Faults are all that is wrong in a configuration, by line. It is the error that Parse returns.
type Faults []Fault

// Error is one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// report collects the faults of a file.
type report struct {
	file   string
	root   *yaml.Node
	faults Faults
}

// add notes a fault of the field at path, or of what stands nearest around it.
func (r *report) add(path, format string, args ...any) {
	r.at(locate(r.root, path), path, format, args...)
}

// at notes a fault on a line.
func (r *report) at(line int, path, format string, args ...any) {
	r.faults = append(r.faults, Fault{File: r.file, Line: max(line, 1), Path: path, Text: fmt.Sprintf(format, args...)})
}

// err returns the faults in the order of their lines, nil when there are none.
func (r *report) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return r.faults
}

// locate returns the line of the field at path; when there is none, that of the innermost one around it.
func locate(n *yaml.Node, path string) int {
	if n == nil {
		return 1
	}
	line := n.Line
	for _, step := range strings.FieldsFunc(path, func(c rune) bool { return c == '.' || c == '[' }) {
		next, at := child(n, step)
		if next == nil {
			break
		}
		n, line = next, at
	}
	return line
}

// child returns a field or, for "3]", an element of n, and the line where it begins.
func child(n *yaml.Node, step string) (*yaml.Node, int) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		i, err := strconv.Atoi(strings.TrimSuffix(step, "]"))
		if err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}

// leaves returns the errors that were joined in err. What wraps joined errors has something to say itself, and stays
// whole.
func leaves(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var list []error
	for _, e := range joined.Unwrap() {
		list = append(list, leaves(e)...)
	}
	return list
}
