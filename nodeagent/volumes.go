package nodeagent

import (
	"fmt"
	"strings"
)

// unmounted says which volumes of the pod are missing: this version mounts none. A pod that has any is held before its
// sandbox, since to run it without its data could do harm. On a simulated machine there is nothing to mount.
func (j job) unmounted() string {
	volumes := j.pod.GetSpec().GetVolumes()
	if len(volumes) == 0 || j.agent.cfg.Simulated {
		return ""
	}
	names := make([]string, 0, len(volumes))
	for _, v := range volumes {
		names = append(names, v.GetName())
	}
	return fmt.Sprintf("unmounted volumes=[%s]: this version of Monoplane does not mount volumes",
		strings.Join(names, " "))
}
