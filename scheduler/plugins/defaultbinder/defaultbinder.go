// Package defaultbinder binds pods through the API (spec: SCHED-3). The server compares: unbound, same uid, not
// terminating, not gated, node present.
package defaultbinder

import (
	"context"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "DefaultBinder"

// Plugin implements Bind.
type Plugin struct{ pods corev1.PodsClient }

// New returns the plugin.
func New(pods corev1.PodsClient) *Plugin { return &Plugin{pods} }

var _ framework.Bind = (*Plugin)(nil)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Bind binds the pod of that uid to the node.
func (p *Plugin) Bind(ctx context.Context, _ *framework.CycleState, pod *framework.PodInfo, node string) *framework.Status {
	_, err := p.pods.Bind(ctx, &corev1.BindPodRequest{
		Namespace: pod.Key.Namespace,
		Name:      pod.Key.Name,
		Object: &corev1.Binding{
			Metadata: &metav1.ObjectMeta{Namespace: pod.Key.Namespace, Name: pod.Key.Name, Uid: pod.UID},
			Target:   &corev1.ObjectReference{Kind: "Node", Name: node},
		},
	})
	if err != nil {
		return framework.AsError(Name, err)
	}
	return nil
}
