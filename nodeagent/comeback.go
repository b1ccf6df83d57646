package nodeagent

import (
	"context"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/podstate"
)

// returned is what the agent finds when it comes back.
type returned struct {
	pods  []*corev1.Pod
	local map[string]podstate.Observation // by uid
}

// comeBack finds out what runs here and what should, and stops what should not; it returns once that is gone.
// While either cannot be read, nothing is stopped or started. spec: NODE-2
func (a *Agent) comeBack(ctx context.Context) (*returned, error) {
	var local map[string]*local
	err := retry(ctx, func(ctx context.Context) (err error) {
		if local, err = a.observeAll(ctx, nil); err != nil {
			a.cfg.Logger.Warn("the container runtime cannot be read", "error", err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var pods *corev1.PodList
	err = retry(ctx, func(ctx context.Context) (err error) {
		// No resourceVersion: the read is linearizable.
		pods, err = a.cfg.Client.Pods.List(ctx, &metav1.ListRequest{FieldSelector: "spec.nodeName=" + a.cfg.NodeName})
		if err != nil {
			a.cfg.Logger.Warn("the pods of the node cannot be read; what runs goes on and nothing is started", "error", err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	bound := make(map[string]bool, len(pods.GetItems()))
	for _, p := range pods.GetItems() {
		bound[uidOf(p)] = true
	}
	out := &returned{pods: pods.GetItems(), local: make(map[string]podstate.Observation, len(local))}
	var gone []*worker
	for uid, l := range local {
		if bound[uid] {
			out.local[uid] = l.Observation
			continue
		}
		gone = append(gone, a.end(uid, l))
	}
	return out, a.waitUntil(ctx, func() bool {
		for _, w := range gone {
			if a.worker(w.uid) == w {
				return false
			}
		}
		return true
	})
}

// end stops and removes what runs here for a pod that the API does not have on this node.
func (a *Agent) end(uid string, l *local) *worker {
	a.cfg.Logger.Info("stopping a pod that is no longer this node's", "pod", l.namespace+"/"+l.name, "uid", uid)
	meta := &metav1.ObjectMeta{Namespace: l.namespace, Name: l.name, Uid: uid}
	w := &worker{agent: a, uid: uid, m: podstate.NewVanished(a.host, meta, l.Observation, time.Now())}
	a.add(w)
	return w
}
