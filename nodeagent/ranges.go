package nodeagent

import (
	"context"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// ranges is what the runtime was told of the ranges of the pods' addresses. The agent's mu guards it.
type ranges struct {
	// known are those that the runtime took; empty when it may know none.
	known string
	// telling is closed when the call that tells them has ended; nil while there is none.
	telling chan struct{}
	// doubted: since that call began there was reason to believe that the runtime has forgotten what it was told.
	doubted bool
	// awaited: a heartbeat went on without the end of that call, and another is to follow it.
	awaited bool
}

// forget has the runtime told again with the next heartbeat.
func (r *ranges) forget(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
	r.known, r.doubted = "", true
}

// tellRanges tells the runtime the ranges of the pods' addresses that the node was given, if it does not know them:
// a runtime that gives pods addresses of its own is not ready before. It may make a network for that, which takes as
// long as other work of a runtime, but holds up heartbeats for statusTimeout only. It is told once at a time. spec:
// NET-1
func (a *Agent) tellRanges(ctx context.Context, node *corev1.Node) {
	r := &a.ranges
	given := strings.Join(node.GetSpec().GetPodCIDRs(), ",")
	a.mu.Lock()
	if given == r.known {
		a.mu.Unlock()
		return
	}
	done := r.telling
	isNew := done == nil
	if isNew {
		done = make(chan struct{})
		r.telling, r.doubted, r.awaited = done, false, false
	}
	a.mu.Unlock()
	if isNew {
		a.spawn(func(ctx context.Context) { a.tell(ctx, given, done) })
	}
	patience := time.NewTimer(statusTimeout)
	defer patience.Stop()
	select {
	case <-done:
		return
	case <-patience.C:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.telling == done {
		r.awaited = true
	}
}

// tell tells the runtime ranges, and closes done.
func (a *Agent) tell(ctx context.Context, given string, done chan<- struct{}) {
	bounded, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	_, err := a.cfg.Runtime.UpdateRuntimeConfig(bounded, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: given}},
	})
	r := &a.ranges
	a.mu.Lock()
	r.telling = nil
	if err == nil && !r.doubted {
		r.known = given
	}
	awaited := r.awaited
	a.mu.Unlock()
	close(done)
	switch {
	case ctx.Err() != nil: // the agent ends
	case err != nil:
		a.cfg.Logger.Warn("the container runtime does not take the range of the pods' addresses; it is told again",
			"range", given, "error", err)
	case awaited:
		a.LookAtNode()
	}
}
