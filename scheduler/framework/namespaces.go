package framework

import "maps"

// Namespaces are the labels of namespaces, by name. One that is not known has none.
type Namespaces map[string]map[string]string

// Namespaces returns the labels of all namespaces. They must not be changed.
func (s *Snapshot) Namespaces() Namespaces { return s.namespaces }

// SetNamespace takes the labels of a namespace; nil when it has none or is gone. It must not be called during a
// decision.
func (s *Snapshot) SetNamespace(name string, labels map[string]string) {
	if maps.Equal(s.namespaces[name], labels) {
		return
	}
	if len(labels) == 0 {
		delete(s.namespaces, name)
	} else {
		s.namespaces[name] = labels
	}
	s.index.forgetNamespaces()
}
