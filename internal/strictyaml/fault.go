package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Fault is one thing that is wrong in a file.
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

// Faults are all that is wrong in a file, by line.
type Faults []Fault

// Error is one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Report collects the faults of a file.
type Report struct {
	// File is the name that the faults have.
	File string
	// Root is the document, from which the lines of faults come; nil before it has been read.
	Root *yaml.Node
	// Faults are those found until now.
	Faults Faults
}

// Add notes a fault of the field at path, or of what stands nearest around it.
func (r *Report) Add(path, format string, args ...any) {
	r.At(locate(r.Root, path), path, format, args...)
}

// At notes a fault on a line.
func (r *Report) At(line int, path, format string, args ...any) {
	r.Faults = append(r.Faults, Fault{File: r.File, Line: max(line, 1), Path: path, Text: fmt.Sprintf(format, args...)})
}

// Err returns the faults in the order of their lines, nil when there are none.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return r.Faults
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

// Index returns the path of an element of the list at path.
func Index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
