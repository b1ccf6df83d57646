// Package nodevolumelimits is the place of Kubernetes' plugin for how many volumes a node takes. Kubernetes reads the
// limits of CSI drivers from CSINode objects and nowhere else; here there are none, so that no node has a limit and
// every pod is skipped. The plugin is there for configurations that name it.
package nodevolumelimits

import "monoplane.dev/scheduler/framework"

// Name is the plugin's name.
const Name = "NodeVolumeLimits"

// Plugin implements PreFilter.
type Plugin struct{ skip *framework.Status }

// New returns the plugin.
func New() *Plugin { return &Plugin{framework.NewStatus(framework.Skip, Name)} }

var _ framework.PreFilter = (*Plugin)(nil)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// PreFilter skips all pods.
func (p *Plugin) PreFilter(
	*framework.CycleState, *framework.PodInfo, *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	return nil, p.skip
}
