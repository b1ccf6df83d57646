// Package defaultbinder binds pods through the API (spec: SCHED-3). The server compares: the pod unbound, not
// terminating, not gated, pod and node as they were judged.
package defaultbinder

import (
	"context"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "DefaultBinder"

// Plugin implements Bind.
type Plugin struct{ pods corev1rpc.PodsClient }

// New returns the plugin.
func New(pods corev1rpc.PodsClient) *Plugin { return &Plugin{pods} }

var _ framework.Bind = (*Plugin)(nil)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Bind binds the pod to the node if both are as they were judged.
func (p *Plugin) Bind(
	ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string,
) *framework.Status {
	_, err := p.pods.Bind(ctx, &corev1rpc.BindPodRequest{
		Namespace: pod.Key.Namespace,
		Name:      pod.Key.Name,
		Object:    framework.NewBinding(state, pod, node),
	})
	if err != nil {
		return framework.AsError(Name, err)
	}
	return nil
}
