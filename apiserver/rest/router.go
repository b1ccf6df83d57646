package rest

import (
	"fmt"
	"strings"
)

// maxSegments bounds the depth of a path that is looked at.
const maxSegments = 12

// router finds routes by path. It is a tree over path segments: a literal segment is preferred to a variable, and
// an empty segment matches nothing, so that no name can be empty. A node whose rest is a variable has nothing else
// below it.
type router struct {
	root node
}

type node struct {
	literal  map[string]*node
	variable *node
	// rest is where all paths below this node end; nil for none.
	rest *node
	// routes are the routes that end here, by HTTP method; nil when none does.
	routes map[string]*route
}

// add puts a route at a template such as "/api/v1/namespaces/{namespace}/pods".
func (t *router) add(method, template string, r *route) error {
	n := &t.root
	for segment := range strings.SplitSeq(strings.TrimPrefix(template, "/"), "/") {
		if isRest(segment) {
			if n.rest == nil {
				n.rest = &node{}
			}
			n = n.rest
			continue
		}
		if isVariable(segment) {
			if n.variable == nil {
				n.variable = &node{}
			}
			n = n.variable
			continue
		}
		next := n.literal[segment]
		if next == nil {
			if n.literal == nil {
				n.literal = make(map[string]*node)
			}
			next = &node{}
			n.literal[segment] = next
		}
		n = next
	}
	if n.routes == nil {
		n.routes = make(map[string]*route)
	}
	if n.routes[method] != nil {
		return fmt.Errorf("two routes for %s %s", method, template)
	}
	n.routes[method] = r
	return nil
}

// values are the values of the variables of a path, in order.
type values struct {
	list [4]string
	n    int
}

// find returns the routes of a path, by HTTP method, and the values of its variables. It returns nil for an
// unknown path.
func (t *router) find(path string) (map[string]*route, values) {
	var v values
	if len(path) < 2 || path[0] != '/' {
		return nil, v
	}
	n := t.root.find(path[1:], &v, 0)
	if n == nil {
		return nil, v
	}
	return n.routes, v
}

func (n *node) find(path string, v *values, depth int) *node {
	if n.rest != nil && v.n < len(v.list) {
		v.list[v.n] = path
		v.n++
		return n.rest
	}
	segment, rest, more := strings.Cut(path, "/")
	if segment == "" || depth == maxSegments {
		return nil
	}
	if next := n.literal[segment]; next != nil {
		if found := next.end(rest, more, v, depth); found != nil {
			return found
		}
	}
	if n.variable == nil || v.n == len(v.list) {
		return nil
	}
	v.list[v.n] = segment
	v.n++
	if found := n.variable.end(rest, more, v, depth); found != nil {
		return found
	}
	v.n--
	return nil
}

func (n *node) end(rest string, more bool, v *values, depth int) *node {
	if more {
		return n.find(rest, v, depth+1)
	}
	if n.routes == nil {
		return nil
	}
	return n
}

func isVariable(segment string) bool {
	return strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}")
}

// isRest says whether a variable takes all the rest of a path, with its slashes: {path=**}.
func isRest(segment string) bool { return isVariable(segment) && strings.HasSuffix(segment, "=**}") }

// variableOf returns the name of a variable.
func variableOf(segment string) string {
	return strings.TrimSuffix(strings.Trim(segment, "{}"), "=**")
}
