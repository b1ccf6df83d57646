// Package staticpod says what is special about static pods, which come from a manifest on a node's own machine, and
// about their mirrors, which show them in the API (STATIC-1). Agents make mirrors by these rules and the server takes
// them by the same. What a static pod may not refer to is in package podrefs.
//
// It looks at objects only.
package staticpod

import (
	metav1 "monoplane.dev/api/meta/v1"
)

// Annotations of static pods and of their mirrors.
const (
	// Source says where the manifest is: "file" or "http".
	Source = "kubernetes.io/config.source"
	// Hash is the uid that the pod has on its node.
	Hash = "kubernetes.io/config.hash"
	// Seen is when the agent first saw the manifest.
	Seen = "kubernetes.io/config.seen"
	// Mirror is on mirrors only; its value is that of Hash.
	Mirror = "kubernetes.io/config.mirror"
)

// IsMirror reports whether a pod of the API only shows a static pod.
func IsMirror(m *metav1.ObjectMeta) bool {
	_, ok := m.GetAnnotations()[Mirror]
	return ok
}
