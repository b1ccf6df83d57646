package nodeagent

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podstate"
)

// watchRuntime learns of changes in the runtime: by its events while it sends them, and by looking at everything,
// seldom while it does and often while it does not.
func (a *Agent) watchRuntime(ctx context.Context) error {
	events := make(chan bool) // whether events flow, when that changes
	a.spawn(func(ctx context.Context) { a.followEvents(ctx, events) })
	last := make(map[string]uint64) // by uid, what relist saw
	flowing := false
	for {
		wait := a.cfg.PollInterval
		if flowing {
			wait = a.cfg.RelistInterval
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case flowing = <-events:
			t.Stop() // look once more, at what was missed in between
		case <-t.C:
		}
		seen, err := a.relist(ctx, last)
		if err != nil {
			if ctx.Err() == nil {
				a.cfg.Logger.Warn("the container runtime cannot be read", "error", err)
			}
			continue
		}
		last = seen
	}
}

// followEvents brings the runtime's events to the workers and tells flowing when they begin and when they end. They
// have begun when the runtime has sent its headers, or the first event.
func (a *Agent) followEvents(ctx context.Context, flowing chan<- bool) {
	tell := func(on bool) {
		select {
		case flowing <- on:
		case <-ctx.Done():
		}
	}
	const most = time.Minute
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, most) {
		stream, err := a.cfg.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err == nil {
			_, err = stream.Header()
		}
		if err == nil {
			tell(true)
			began := time.Now()
			for err == nil {
				var ev *runtimeapi.ContainerEventResponse
				if ev, err = stream.Recv(); err == nil {
					a.event(ev)
				}
			}
			tell(false)
			if time.Since(began) > most {
				wait = time.Second // it worked for a while
			}
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

// event brings one event to its pod's worker.
func (a *Agent) event(ev *runtimeapi.ContainerEventResponse) {
	box := ev.GetPodSandboxStatus()
	w := a.worker(box.GetMetadata().GetUid())
	if w == nil {
		return // relist deals with what nobody knows
	}
	if ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		return // we deleted it, or relist will find it missing
	}
	if len(ev.GetContainersStatuses()) == 0 {
		w.post(podstate.Poke{})
		return
	}
	seen := podstate.Observation{Sandboxes: []podstate.Sandbox{sandboxOf(box)}}
	for _, c := range ev.GetContainersStatuses() {
		in := a.instanceOf(c)
		in.SandboxID = box.GetId()
		seen.Instances = append(seen.Instances, in)
	}
	w.post(podstate.Observed{Seen: seen})
}

// relist looks at everything that the runtime has, pokes the workers whose pods have changed since the last look, and
// ends pods that nobody knows. It returns what it saw, to compare the next time.
func (a *Agent) relist(ctx context.Context, last map[string]uint64) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	containers, err := a.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	sandboxes, err := a.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	seen := make(map[string]uint64)
	// Sums do not depend on the order in which the runtime lists.
	for _, s := range sandboxes.GetItems() {
		if uid := s.GetLabels()[criconfig.LabelPodUID]; uid != "" {
			seen[uid] += print(s.GetId(), uint64(s.GetState()))
		}
	}
	for _, c := range containers.GetContainers() {
		if uid := c.GetLabels()[criconfig.LabelPodUID]; uid != "" {
			seen[uid] += print(c.GetId(), uint64(c.GetState()))
		}
	}
	for uid, sum := range seen {
		switch w := a.worker(uid); {
		case w == nil:
			a.unknown(ctx, uid)
		case last[uid] != sum:
			w.post(podstate.Poke{})
		}
	}
	for uid := range last {
		if _, still := seen[uid]; still {
			continue
		}
		if w := a.worker(uid); w != nil {
			w.post(podstate.Poke{})
		}
	}
	return seen, nil
}

// print returns a number that tells states of a thing apart (FNV-1a).
func print(id string, state uint64) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	return (h ^ (state + 1)) * prime
}

// unknown deals with something that runs here for a pod without a worker: it is stopped if the API, read live, does not
// have the pod on this node.
func (a *Agent) unknown(ctx context.Context, uid string) {
	all, err := a.observeAll(ctx, map[string]string{criconfig.LabelPodUID: uid})
	l := all[uid]
	if err != nil || l == nil || a.worker(uid) != nil {
		return // gone, or known by now; else the next look will try again
	}
	p, err := a.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: l.namespace, Name: l.name})
	switch {
	case err == nil && uidOf(p) == uid && p.GetSpec().GetNodeName() == a.cfg.NodeName:
		a.adopt(p, l.Observation)
	case err == nil, apierrors.Is(err, apierrors.NotFound):
		a.end(uid, l)
	}
}
