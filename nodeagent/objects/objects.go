// Package objects gives a node's agent the ConfigMaps and Secrets that its pods use, and tells when they change.
//
// A Tracker is told which pods there are. An object that a pod refers to is watched from when it is first read until
// the last pod that refers to it is gone: one watch, however many pods use the object, and none as long as nobody
// needs what is in it. One that cannot change (immutable) is read, and not watched.
//
//	               first read                     what there is, or that there is nothing
//	referred to ──────────────► asking ──────────────────────────────────────────────► followed ◄─┐ changes
//	     ▲                        │ ▲                                                   │    └────┘
//	     │                        │ └── failed: back-off ──┐      it is immutable       │
//	     │                        └────────────────────────┘                            ▼
//	     └──────────────────── another pod refers to it ────────────────────────── settled
//	(when no pod refers to it any more, it is forgotten in whatever state)
//
// What it guarantees:
//   - What is returned is what the object was at some moment since the watch began, and it moves forward only. While
//     the API does not answer, that is what was known last; what was never known is an error, at once after the first
//     failure.
//   - A change of content, an object that appears or goes, and an answer after an error was given, are told by
//     OnChange with the uids of all pods that refer to the object, once for each. Labels and annotations are no
//     content.
//   - What nobody refers to is not kept: memory is bounded by what the node's pods refer to.
//   - Neither errors nor logs hold anything of the content.
//
// What it does not do: order what it tells against anything else. A pod that starts in the moment in which an object
// changes may still get the object as it was; it is told of the change then.
package objects

import (
	"context"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
)

// Source returns objects by their names. Errors are of package apierrors: NotFound when there is no such object,
// Forbidden when no pod of the node refers to it. What is returned is shared and must not be changed.
type Source interface {
	// ConfigMap returns a ConfigMap.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a Secret.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Direct returns a Source that asks the API each time.
func Direct(c *client.Client) Source { return direct{c} }

type direct struct{ c *client.Client }

// ConfigMap implements Source.
func (d direct) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return d.c.ConfigMaps.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
}

// Secret implements Source.
func (d direct) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return d.c.Secrets.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
}
