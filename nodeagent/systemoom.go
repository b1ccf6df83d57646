package nodeagent

import (
	"context"
	"fmt"

	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/oom"
)

// watchOOM tells, as events of the node, which processes the kernel kills because the machine has no memory left.
// Where the kernel's log cannot be read nothing is told.
func (a *Agent) watchOOM(ctx context.Context) error {
	err := oom.Watch(ctx, a.cfg.KernelLog, func(v oom.Victim) {
		text := fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", v.Process, v.PID)
		a.cfg.Logger.Warn("the machine has no memory left, and the kernel has killed a process", "process", v.Process,
			"pid", v.PID)
		a.nodeEvent(record.Warning, "SystemOOM", text)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.cfg.Logger.Debug("kills by the kernel are not told of", "error", err)
	<-ctx.Done()
	return ctx.Err()
}
