package fieldmanager

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"monoplane.dev/codec/json"
)

// set is a set of paths into an object, as a tree. Sets share their parts: none is changed once it is made.
//
// Invariant: the nodes of a set are in the order of byElement, no two have the same element, and each of them is a
// member or has nodes.
type set []node

// node is one step of a path: what comes before it is where it lies in the tree.
type node struct {
	// element is the step as fieldsV1 writes it: "f:spec" for a field or a key of a map, `k:{"name":"web"}` for an
	// element of a list by its keys, `v:"a"` for a value of a list.
	element string
	// member says that the path that ends here is in the set.
	member bool
	// below are the paths that go on.
	below set
}

// byElement orders nodes as Kubernetes writes them: fields, keys, values; numbers by what they count.
func byElement(a, b string) int {
	if strings.HasPrefix(a, "f:") && strings.HasPrefix(b, "f:") {
		return strings.Compare(a, b)
	}
	n, i, quoted := min(len(a), len(b)), 0, false
	for ; i < n && a[i] == b[i]; i++ {
		if a[i] == '"' && (i == 0 || a[i-1] != '\\') {
			quoted = !quoted
		}
	}
	switch {
	case i == n:
		return cmp.Compare(len(a), len(b))
	case quoted && a[i] == '"':
		return -1 // the text that ends comes first
	case quoted && b[i] == '"':
		return 1
	case !quoted && (digit(a[i]) && digit(b[i]) || i > 0 && digit(a[i-1])):
		return cmp.Or(cmp.Compare(digits(a[i:]), digits(b[i:])), cmp.Compare(a[i], b[i]))
	case a[i] == '"':
		return 1 // numbers come before texts
	case b[i] == '"':
		return -1
	default:
		return cmp.Compare(a[i], b[i])
	}
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns how many digits s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return n
}

// union returns the paths that are in a or in b.
func union(a, b set) set {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make(set, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch order := byElement(a[0].element, b[0].element); {
		case order < 0:
			out, a = append(out, a[0]), a[1:]
		case order > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			out = append(out, node{a[0].element, a[0].member || b[0].member, union(a[0].below, b[0].below)})
			a, b = a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// without returns the paths of a that are not in b. When there are none of b in it, that is a itself, and changed is
// false.
func without(a, b set) (out set, changed bool) {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		order := byElement(a[i].element, b[j].element)
		if order > 0 {
			j++
			continue
		}
		if order < 0 {
			if changed {
				out = append(out, a[i])
			}
			i++
			continue
		}
		n := a[i]
		below, less := without(n.below, b[j].below)
		if !changed && (less || n.member && b[j].member) {
			changed = true
			out = slices.Clone(a[:i])
		}
		n.below, n.member = below, n.member && !b[j].member
		if changed && (n.member || len(n.below) > 0) {
			out = append(out, n)
		}
		i, j = i+1, j+1
	}
	if !changed {
		return a, false
	}
	return append(out, a[i:]...), true
}

// contains says whether all paths of b are in a.
func contains(a, b set) bool {
	for _, n := range b {
		i, found := slices.BinarySearchFunc(a, n.element, func(x node, e string) int { return byElement(x.element, e) })
		if !found || n.member && !a[i].member || !contains(a[i].below, n.below) {
			return false
		}
	}
	return true
}

// appendJSON appends the set as fieldsV1 has it.
func (s set) appendJSON(b []byte) []byte {
	b = append(b, '{')
	for i, n := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = json.AppendString(b, n.element)
		b = append(b, ':')
		if n.member && len(n.below) > 0 {
			b = append(b, `{".":{},`...)
			b = append(b, n.below.appendJSON(nil)[1:]...)
			continue
		}
		b = n.below.appendJSON(b)
	}
	return append(b, '}')
}

var errFields = errors.New("fieldsV1 is not an object of objects")

// parseSet reads what appendJSON writes.
func parseSet(text []byte) (set, error) {
	p := parser{text: string(text)}
	out, _ := p.object(0)
	p.space()
	if p.failed || p.at != len(text) {
		return nil, errFields
	}
	return out, nil
}

// parser reads fieldsV1. It knows no more of JSON than that has.
type parser struct {
	// text is what the elements that are read are parts of.
	text   string
	at     int
	failed bool
}

// maxDepth is the deepest path that is read; no field of any kind lies as deep.
const maxDepth = 256

// object reads an object. Member says that the path that leads to it is in the set.
func (p *parser) object(depth int) (out set, member bool) {
	if depth > maxDepth || !p.take('{') {
		p.failed = true
		return nil, false
	}
	if p.take('}') {
		return nil, true
	}
	for !p.failed {
		element := p.string()
		if !p.take(':') {
			p.failed = true
		}
		if p.failed {
			break
		}
		below, is := p.object(depth + 1)
		if element == "." {
			member = true
		} else {
			out = append(out, node{element, is, below})
		}
		if p.take('}') {
			break
		}
		if !p.take(',') {
			p.failed = true
		}
	}
	order := func(a, b node) int { return byElement(a.element, b.element) }
	if !slices.IsSortedFunc(out, order) {
		slices.SortFunc(out, order)
	}
	for i := 1; i < len(out); i++ {
		if out[i].element == out[i-1].element {
			p.failed = true
		}
	}
	return out, member
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// take steps over c if it comes next.
func (p *parser) take(c byte) bool {
	p.space()
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

// string reads a text. Those that name an element of a list have quotes in them, and hardly ever another escape.
func (p *parser) string() string {
	p.space()
	start := p.at
	if !p.take('"') {
		p.failed = true
		return ""
	}
	simple, escapes := true, false
	for p.at < len(p.text) && p.text[p.at] != '"' {
		if p.text[p.at] == '\\' {
			p.at++
			escapes = true
			simple = simple && p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '\\')
		}
		p.at++
	}
	if p.at >= len(p.text) {
		p.at, p.failed = len(p.text), true
		return ""
	}
	p.at++
	raw := p.text[start+1 : p.at-1]
	switch {
	case !escapes:
		return raw
	case simple:
		out := make([]byte, 0, len(raw))
		for i := 0; i < len(raw); i++ {
			if raw[i] == '\\' {
				i++
			}
			out = append(out, raw[i])
		}
		return string(out)
	}
	var s string
	d := json.NewDecoder([]byte(p.text[start:p.at]))
	d.String(&s)
	p.failed = p.failed || d.Err() != nil
	return s
}
