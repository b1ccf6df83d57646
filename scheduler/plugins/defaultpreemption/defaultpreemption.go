// Package defaultpreemption is the place of preemption (PREEMPT-1 to PREEMPT-4). It does not preempt yet: it finds no
// victims, and says so in the words that users of Kubernetes know.
package defaultpreemption

import (
	"fmt"
	"strings"

	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "DefaultPreemption"

// Plugin implements PostFilter.
type Plugin struct{}

var _ framework.PostFilter = Plugin{}

// Name returns the plugin's name.
func (Plugin) Name() string { return Name }

// PostFilter says for how many nodes removing pods could not help, and for how many there is nothing to remove.
func (Plugin) PostFilter(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot, d *framework.Diagnosis) (string, *framework.Status) {
	if d.Nodes == 0 {
		return "", framework.NewStatus(framework.Unschedulable, Name)
	}
	if pod.Pod.GetSpec().GetPreemptionPolicy() == "Never" {
		return "", refuse("not eligible due to preemptionPolicy=Never.")
	}
	hopeless := d.Unresolvable()
	counts := framework.CountedReasons(map[string]int{
		"Preemption is not helpful for scheduling":     hopeless,
		"No preemption victims found for incoming pod": d.Nodes - hopeless,
	})
	return "", refuse(fmt.Sprintf("0/%d nodes are available: %s.", d.Nodes, strings.Join(counts, ", ")))
}

func refuse(message string) *framework.Status {
	return framework.NewStatus(framework.Unschedulable, Name, "preemption: "+message)
}
