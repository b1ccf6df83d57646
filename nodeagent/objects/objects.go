// Package objects gives a node's agent the ConfigMaps and Secrets that its pods use.
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
