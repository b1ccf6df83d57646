// Package builtin names the namespaces that every cluster has. The server makes them and lets nobody delete them, and
// the namespace controller makes again what is missing all the same (spec: OBJ-14).
package builtin

import (
	"slices"

	metav1 "monoplane.dev/api/meta/v1"
)

// NodeLeases is the namespace of the agents' heartbeats (spec: NODE-1).
const NodeLeases = "kube-node-lease"

// Default is the namespace of those who name none, and API the name of the Service in it that leads to the API server.
const (
	Default = "default"
	API     = "kubernetes"
)

// Namespaces returns the names of all of them.
func Namespaces() []string { return []string{Default, "kube-system", "kube-public", NodeLeases} }

// IsAPI says whether an object has the name of the Service that leads to the API server.
func IsAPI(m *metav1.ObjectMeta) bool { return m.GetNamespace() == Default && m.GetName() == API }

// Namespace says whether a namespace is one of them.
func Namespace(name string) bool { return slices.Contains(Namespaces(), name) }
