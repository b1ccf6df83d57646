// Package prioritysort orders the queue by priority, and pods of one priority by the time they became ready to be
// tried (spec: SCHED-2).
package prioritysort

import "monoplane.dev/scheduler/framework"

// Name is the plugin's name.
const Name = "PrioritySort"

// Plugin implements QueueSort.
type Plugin struct{}

var _ framework.QueueSort = Plugin{}

// Name returns the plugin's name.
func (Plugin) Name() string { return Name }

// Less says whether a comes before b.
func (Plugin) Less(a, b *framework.QueuedPod) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.Since.Before(b.Since)
}
