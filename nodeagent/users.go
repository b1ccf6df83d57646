package nodeagent

import (
	"fmt"
	"os"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/userns"
)

// users gives pods users of their own, as far as the runtime can. spec: USER-1, USER-2
type users struct {
	mu sync.Mutex
	// able are the runtime's handlers that can; "" is the usual way.
	able map[string]bool
	// ranges is nil until a pod wants one: most nodes have none that does.
	ranges *userns.Ranges
}

// learn takes what the runtime says of its handlers. They seldom change.
func (u *users) learn(handlers []*runtimeapi.RuntimeHandler) {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.able)
	for _, h := range handlers {
		if !h.GetFeatures().GetUserNamespaces() {
			continue
		}
		if u.able == nil {
			u.able = map[string]bool{}
		}
		u.able[h.GetName()] = true
	}
}

// can reports whether the runtime can by a handler.
func (u *users) can(handler string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.able[handler]
}

// open returns the ranges of the node's ids. What is wrong with them may be mended while the agent runs.
func (u *users) open(cfg *Config) (*userns.Ranges, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ranges != nil {
		return u.ranges, nil
	}
	pods := hostinfo.DefaultPods
	if n := bytesOf(cfg.Machine.Capacity["pods"]); n > 0 {
		pods = int(n)
	}
	r, err := userns.Open(userns.Config{
		SubUID: userns.SubUID, SubGID: userns.SubGID, User: userns.User, MaxPods: pods, Dir: cfg.PodsDir,
	})
	if err == nil {
		u.ranges = r
	}
	return r, err
}

// release takes back what a pod had that is gone.
func (u *users) release(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ranges != nil {
		u.ranges.Release(uid)
	}
}

// canHaveUsers refuses a pod that wants users of its own where the runtime has none for it. Runtimes say so of
// themselves; those that say nothing cannot.
func (j job) canHaveUsers(handler string) error {
	if !criconfig.OwnUsers(j.pod.GetSpec()) || j.agent.cfg.Simulated || j.agent.users.can(handler) {
		return nil
	}
	what := "the runtime"
	if handler != "" {
		what = fmt.Sprintf("the runtime's handler %q", handler)
	}
	return fmt.Errorf("can't set `spec.hostUsers: false`, %s does not support user namespaces: it needs a runtime that "+
		"does, such as oci as root, or containerd 2.0 with runc 1.2, and Linux 6.3 with a file system that can map "+
		"ids", what)
}

// firstID returns the first of the pod's ids; 0 when it has the node's users.
func (j job) firstID() (uint32, error) {
	dir := j.homeDir()
	if dir == "" || !criconfig.OwnUsers(j.pod.GetSpec()) {
		return 0, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	ranges, err := j.agent.users.open(&j.agent.cfg)
	if err != nil {
		return 0, fmt.Errorf("user namespace: %w", err)
	}
	first, err := ranges.Of(uidOf(j.pod))
	if err != nil {
		return 0, fmt.Errorf("user namespace: %w", err)
	}
	return first, nil
}
