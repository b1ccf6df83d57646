// Package builtin names the namespaces that every cluster has. The server makes them and lets nobody delete them, and
// the namespace controller makes again what is missing all the same (spec: OBJ-14).
package builtin

import "slices"

// NodeLeases is the namespace of the agents' heartbeats (spec: NODE-1).
const NodeLeases = "kube-node-lease"

// Namespaces returns the names of all of them.
func Namespaces() []string { return []string{"default", "kube-system", "kube-public", NodeLeases} }

// Namespace says whether a namespace is one of them.
func Namespace(name string) bool { return slices.Contains(Namespaces(), name) }
