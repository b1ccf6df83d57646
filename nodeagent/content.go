package nodeagent

import "monoplane.dev/nodeagent/podstate"

// track keeps it known which ConfigMaps and Secrets the pod uses: before anything of it is started, and until nothing
// of it will run again. Life is how far the pod had come before a step. The caller holds the lock.
func (w *worker) track(in podstate.Input, life podstate.Life) {
	if w.m.Life() >= podstate.Stopped {
		if life < podstate.Stopped {
			w.agent.objects.Forget(w.uid)
		}
		return
	}
	switch in.(type) {
	case podstate.Start, podstate.Changed:
		w.agent.objects.Track(w.m.Pod())
	}
}

// contentChanged tells pods that something which they use has changed, or is there at last.
func (a *Agent) contentChanged(uids []string) {
	for _, uid := range uids {
		if w := a.worker(uid); w != nil {
			w.post(podstate.ContentChanged{})
		}
	}
	a.refreshVolumes(uids...)
}
