package crash

import (
	"fmt"
	"sync"

	corev1 "monoplane.dev/api/core/v1"
)

// fate is what is known of one pod, by its uid.
type fate struct {
	name string
	// deleting: a deletion was sent, answered or not. deleted: one was acknowledged.
	deleting, deleted bool
	// forced: a forced deletion was sent; its processes may outlive it for a moment.
	forced bool
}

// history holds what the server has acknowledged.
type history struct {
	mu   sync.Mutex
	pods map[string]*fate // by uid
}

func (h *history) created(p *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods[p.GetMetadata().GetUid()] = &fate{name: p.GetMetadata().GetName()}
}

func (h *history) change(uid string, f func(*fate)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pod := h.pods[uid]; pod != nil {
		f(pod)
	}
}

// check compares the pods that a restarted server has with what was acknowledged before.
//
// spec: OBJ-2, DEL-13
func (h *history) check(items []*corev1.Pod) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	have := map[string]*corev1.Pod{}
	for _, p := range items {
		have[p.GetMetadata().GetUid()] = p
	}
	for uid, f := range h.pods {
		p := have[uid]
		switch {
		case p == nil && !f.deleting:
			return fmt.Errorf("pod %s (%s) was created and acknowledged, nobody deleted it, and it is gone", f.name, uid)
		case p != nil && f.deleted && p.GetMetadata().GetDeletionTimestamp() == nil:
			return fmt.Errorf("the deletion of pod %s (%s) was acknowledged and is forgotten", f.name, uid)
		}
	}
	return nil
}
