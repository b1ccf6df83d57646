package nodeagent

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/rules/staticpod"
)

// returned is what the agent finds when it comes back.
type returned struct {
	pods  []*corev1.Pod
	local map[string]*local // by uid
}

// comeBack finds out what runs here and what should, and stops what should not; it returns once that is gone. What is
// not confirmed dead when its grace period and what the runtime needs after it are over is reported and left to its
// worker, which goes on trying. While either cannot be read, nothing is stopped or started. spec: NODE-2
func (a *Agent) comeBack(ctx context.Context) (*returned, error) {
	var found map[string]*local
	unread := trouble{what: "the container runtime cannot be read", log: a.cfg.Logger}
	err := retry(ctx, runtimeRetryMost, func(try context.Context) (err error) {
		found, err = a.observeAll(try, nil)
		if ctx.Err() == nil {
			unread.tell(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	a.static.begin(ctx, found)
	var pods *corev1.PodList
	err = retry(ctx, apiRetryMost, func(ctx context.Context) (err error) {
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
	out := &returned{local: make(map[string]*local, len(found))}
	for _, p := range pods.GetItems() {
		if staticpod.IsMirror(p.GetMetadata()) {
			a.static.mirrorSeen(p)
			continue
		}
		out.pods = append(out.pods, p)
	}
	var gone []*worker
	for _, p := range out.pods {
		found[uidOf(p)] = a.askForMissing(ctx, p, found[uidOf(p)])
	}
	for uid, l := range found {
		if l == nil {
			continue
		}
		if bound[uid] {
			out.local[uid] = l
			continue
		}
		gone = append(gone, a.end(uid, l))
	}
	return out, a.waitUntil(ctx, func() bool {
		for _, w := range gone {
			if a.worker(w.uid) == w && w.waitedFor() {
				return false
			}
		}
		return true
	})
}

// askForMissing asks for the containers that run as far as the API knows and are not in the lists, as confirmMissing
// does. What the runtime does not tell counts as running until it does.
func (a *Agent) askForMissing(ctx context.Context, p *corev1.Pod, l *local) *local {
	s := p.GetStatus()
	for _, c := range slices.Concat(s.GetInitContainerStatuses(), s.GetContainerStatuses(),
		s.GetEphemeralContainerStatuses()) {
		_, id, _ := strings.Cut(c.GetContainerID(), "://")
		if id == "" || c.GetState().GetRunning() == nil || l != nil &&
			slices.ContainsFunc(l.Instances, func(in podstate.Instance) bool { return in.ID == id }) {
			continue
		}
		in, err := a.instance(ctx, id, nil)
		if notFound(err) {
			continue
		}
		if l == nil {
			l = &local{namespace: p.GetMetadata().GetNamespace(), name: p.GetMetadata().GetName()}
		}
		if err != nil {
			l.unclear = err
			in = podstate.Instance{ID: id, Name: c.GetName(), Attempt: uint32(max(0, c.GetRestartCount())),
				State: podstate.Running, Image: c.GetImage(), ImageID: c.GetImageID()}
		}
		l.Instances = append(l.Instances, in)
	}
	return l
}

// end stops and removes what runs here for a pod that the API does not have on this node.
func (a *Agent) end(uid string, l *local) *worker {
	a.cfg.Logger.Info("stopping a pod that is no longer this node's", "pod", l.namespace+"/"+l.name, "uid", uid)
	meta := &metav1.ObjectMeta{Namespace: l.namespace, Name: l.name, Uid: uid}
	w := &worker{agent: a, uid: uid, m: podstate.NewVanished(a.host, meta, l.Observation, time.Now())}
	a.add(w)
	return w
}

// late says on the Node that the agent is not ready, should it take long to come back.
type late struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// sayWhenLate begins to wait. The Node of an agent that was there before may say that it is ready. spec: NODE-1
func (a *Agent) sayWhenLate(ctx context.Context) *late {
	ctx, cancel := context.WithCancel(ctx)
	l := &late{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		if !sleep(ctx, lateAfter) {
			return
		}
		a.cfg.Logger.Warn("the agent is still finding out what runs on the node; the node is not ready until then")
		for !a.sayComingBack(ctx) && sleep(ctx, lateAfter) {
		}
	}()
	return l
}

// stop returns when nothing is being said any more.
func (l *late) stop() {
	l.cancel()
	<-l.done
}

// lateAfter is how long the agent may take to come back before it says so, and the time between tries to say it.
const lateAfter = 5 * time.Second

// sayComingBack makes the Node, if there is one, say that it is not ready. It reports whether nothing is left to say.
// The answer to a write may be lost: what it says is mended when the node is registered.
func (a *Agent) sayComingBack(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	have, err := a.readNode(ctx)
	if err != nil {
		return apierrors.Is(err, apierrors.NotFound) || apierrors.Is(err, apierrors.Forbidden)
	}
	want := &corev1.Node{Metadata: have.GetMetadata(), Spec: have.GetSpec(), Status: have.GetStatus().Clone()}
	if want.Status == nil {
		want.Status = &corev1.NodeStatus{}
	}
	setNodeCondition(want.Status, "Ready", "False", "KubeletNotReady",
		"the agent has restarted and is finding out what runs on the node")
	_, err = a.cfg.Client.Nodes.UpdateStatus(ctx, &corev1rpc.UpdateNodeRequest{Name: a.cfg.NodeName, Object: want})
	return err == nil || apierrors.Is(err, apierrors.Forbidden)
}
