package auth

import (
	"path"
	"strings"
)

// NodePath splits what is asked of a node's agent into a clean path from the root, such as "/stats/summary", and a
// query.
func NodePath(raw string) (clean, query string) {
	raw, query, _ = strings.Cut(raw, "?")
	return path.Clean("/" + raw), query
}

// nodeRight returns the subresource of nodes that is enough to read a document of an agent, as kubelets have them,
// empty where only "proxy" is, which is enough for all.
func nodeRight(raw string) string {
	clean, _ := NodePath(raw)
	first, _, _ := strings.Cut(clean[1:], "/")
	switch first {
	case "stats", "metrics", "pods", "healthz":
		return first
	default:
		return ""
	}
}

// AuthorizeNodePath is Authorize for a request of what the agent of a node serves at a path: whoever may use all of
// nodes/proxy, or nodes/stats, nodes/metrics, nodes/pods or nodes/healthz respectively.
func (z *Authorizer) AuthorizeNodePath(id Identity, a Attributes, raw string) error {
	err := z.Authorize(id, a)
	if fine := nodeRight(raw); err != nil && fine != "" {
		a.Subresource = fine
		if z.Authorize(id, a) == nil {
			return nil
		}
	}
	return err
}
