package nodeagent

import (
	"context"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podlog"
	"monoplane.dev/nodeagent/podstate"
)

// rotateOnce looks at the log of every running container once, and reports whether any was rotated. spec: CTR-8
func (a *Agent) rotateOnce(ctx context.Context) (rotated bool) {
	for _, w := range a.list() {
		var dir string
		var running []podstate.Instance
		w.look(func(m *podstate.StateMachine) {
			meta := m.Pod().GetMetadata()
			dir = filepath.Join(a.cfg.PodLogDir, criconfig.PodDir(meta.GetNamespace(), meta.GetName(), w.uid))
			m.EachInstance(func(in podstate.Instance) {
				if in.State == podstate.Running {
					running = append(running, in)
				}
			})
		})
		for _, in := range running {
			err := podlog.Rotate(filepath.Join(dir, criconfig.LogName(in.Name, in.Attempt)), a.cfg.LogMaxSize,
				a.cfg.LogMaxFiles, now(),
				func() error {
					rotated = true
					ctx, cancel := context.WithTimeout(ctx, lookTimeout) // the others wait for it
					defer cancel()
					_, err := a.cfg.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: in.ID})
					return err
				})
			if err != nil && ctx.Err() == nil {
				a.cfg.Logger.Warn("a log cannot be rotated", "pod", name(w.pod()), "uid", w.uid, "container", in.Name, "error",
					err)
			}
		}
	}
	return rotated
}
