// Package route finds the backend of a request by its host and path, as the rules of Ingresses say.
//
// A Table is made once and never changes: whoever learns of other rules makes another table. Finding takes time in
// proportion to the number of elements of the longest rule of the host, whatever the number of rules and hosts and
// however long the path is. The package knows no objects of the API and does no I/O.
//
// The host decides first: the rules of the very host, else those of the wildcard that covers it, which stands for
// exactly one label, else those without a host. Among the rules of the host an exact path goes before all prefixes,
// and of these the one with the most elements wins. Where no path of the host fits, the host's own fallback counts,
// and then that of the table. Of two rules that say the same the earlier one counts.
package route

import (
	"cmp"
	"net"
	"net/url"
	"path"
	"strings"
)

// Kind says how a path is meant.
type Kind int

// The kinds of paths.
const (
	// Prefix matches element by element: /a matches /a, /a/ and /a/b, but not /ab.
	Prefix Kind = iota
	// Exact matches the very path.
	Exact
	// Fallback matches what no other rule of the host does. Its path does not count.
	Fallback
)

// Rule leads requests to a target.
type Rule[T any] struct {
	// Host is a name, a name whose first label is "*", or empty for every host. Case does not count.
	Host string
	// Path is absolute; empty stands for "/". Characters may be written in percent signs.
	Path   string
	Kind   Kind
	Target T
}

// Table finds targets. Its zero value finds nothing.
type Table[T any] struct {
	hosts map[string]*paths[T]
	other *T
}

// paths are the rules of one host.
type paths[T any] struct {
	exact, prefix map[string]ruled[T] // the keys of prefix end without a slash
	// depth is the number of elements of the longest prefix.
	depth    int
	fallback *ruled[T]
}

// ruled is a target and the index of the rule that it is of.
type ruled[T any] struct {
	target T
	rule   int
}

// Repeated is a rule that says the same as an earlier one, which counts. Both are indexes.
type Repeated struct{ Rule, Earlier int }

// New makes a table. Other is the target of requests that no rule fits; nil for none.
func New[T any](rules []Rule[T], other *T) (*Table[T], []Repeated) {
	t := &Table[T]{hosts: map[string]*paths[T]{}, other: other}
	var repeated []Repeated
	for i, r := range rules {
		host := Host(r.Host)
		p := t.hosts[host]
		if p == nil {
			p = &paths[T]{exact: map[string]ruled[T]{}, prefix: map[string]ruled[T]{}}
			t.hosts[host] = p
		}
		if first := p.add(r, i); first != i {
			repeated = append(repeated, Repeated{Rule: i, Earlier: first})
		}
	}
	return t, repeated
}

// key is the path by which a table finds a rule.
func (r Rule[T]) key() string {
	at := cmp.Or(r.Path, "/")
	if plain, err := url.PathUnescape(at); err == nil {
		at = plain
	}
	if r.Kind == Prefix {
		at = strings.TrimRight(at, "/")
	}
	return at
}

// add adds rule number i, unless there is one that says the same, and returns the number of the one that counts.
func (p *paths[T]) add(r Rule[T], i int) int {
	if r.Kind == Fallback {
		if p.fallback == nil {
			p.fallback = &ruled[T]{r.Target, i}
		}
		return p.fallback.rule
	}
	at, into := r.key(), p.exact
	if r.Kind == Prefix {
		into = p.prefix
		p.depth = max(p.depth, strings.Count(at, "/"))
	}
	if there, ok := into[at]; ok {
		return there.rule
	}
	into[at] = ruled[T]{r.Target, i}
	return i
}

// Find returns the target of a request: host is what its Host header says, with or without a port; path is decoded.
func (t *Table[T]) Find(host, path string) (target T, ok bool) {
	host, path = Host(host), clean(path)
	if p := t.of(host); p != nil {
		if target, ok = p.find(path); ok {
			return target, true
		}
		if p.fallback != nil {
			return p.fallback.target, true
		}
	}
	if t.other != nil {
		return *t.other, true
	}
	return target, false
}

// of returns the rules that count for a host; nil for none.
func (t *Table[T]) of(host string) *paths[T] {
	if p := t.hosts[host]; p != nil {
		return p
	}
	if wild := Wildcard(host); wild != "" {
		if p := t.hosts[wild]; p != nil {
			return p
		}
	}
	return t.hosts[""]
}

func (p *paths[T]) find(path string) (target T, ok bool) {
	if r, ok := p.exact[path]; ok {
		return r.target, true
	}
	for path = first(path, p.depth); ; path = path[:strings.LastIndexByte(path, '/')] {
		if r, ok := p.prefix[path]; ok || path == "" {
			return r.target, ok
		}
	}
}

// first returns the first n elements of a path that begins with a slash, without one at the end.
func first(path string, n int) string {
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if n == 0 || i == len(path)-1 {
			return path[:i]
		}
		n--
	}
	return path
}

// Host returns a host as tables and certificates know it: without a port and a final dot, in lower case. What is no
// name, such as an address, stays what it is.
func Host(text string) string {
	if strings.IndexByte(text, ':') >= 0 {
		if host, _, err := net.SplitHostPort(text); err == nil {
			text = host
		}
	}
	return strings.ToLower(strings.TrimSuffix(text, "."))
}

// Wildcard returns the wildcard that covers a host; empty where none can.
func Wildcard(host string) string {
	label, rest, ok := strings.Cut(host, ".")
	if !ok || label == "" || label == "*" || rest == "" {
		return ""
	}
	return "*." + rest
}

// clean takes dots and double slashes out of a path, as servers behind do: a path such as /open/../closed leads where
// they would have it lead. A final slash stays.
func clean(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p // such as "*", of OPTIONS
	}
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	c := path.Clean(p)
	if c != "/" && (strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..")) {
		c += "/"
	}
	return c
}
