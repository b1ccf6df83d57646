package validation

import (
	"strconv"
	"strings"
)

// Path names a field of an object, as "spec.containers[0].name". The checks make one for whatever they look
// at, though nearly always nothing is wrong: nil stands for every path while nobody wants to know names (see
// Faults.Pass), so that they cost nothing.
type Path struct {
	parent *Path
	// name is that of a field, empty for an element of a list or map.
	name string
	// index is what stands in the brackets.
	index string
}

// NewPath returns the path of a field within fields, from the outermost one.
func NewPath(name string, more ...string) *Path {
	p := &Path{name: name}
	for _, m := range more {
		p = p.Child(m)
	}
	return p
}

// Child returns the path of a field.
func (p *Path) Child(name string) *Path {
	if p == nil {
		return nil
	}
	return &Path{parent: p, name: name}
}

// Index returns the path of an element of a list.
func (p *Path) Index(i int) *Path {
	if p == nil {
		return nil
	}
	return &Path{parent: p, index: strconv.Itoa(i)}
}

// Key returns the path of an element of a map.
func (p *Path) Key(key string) *Path {
	if p == nil {
		return nil
	}
	return &Path{parent: p, index: key}
}

// String returns the path as Kubernetes writes it.
func (p *Path) String() string {
	var b strings.Builder
	p.write(&b)
	return b.String()
}

func (p *Path) write(b *strings.Builder) {
	if p == nil {
		return
	}
	p.parent.write(b)
	if p.name == "" {
		b.WriteByte('[')
		b.WriteString(p.index)
		b.WriteByte(']')
		return
	}
	if p.parent != nil {
		b.WriteByte('.')
	}
	b.WriteString(p.name)
}
