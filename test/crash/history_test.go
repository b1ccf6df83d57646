package crash

import (
	"fmt"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// fate is what is known of one pod, by its uid.
type fate struct {
	name string
	// acknowledged: its creation was.
	acknowledged bool
	// deleting: a deletion was sent, answered or not. deleted: one was acknowledged.
	deleting, deleted bool
	// forced: a forced deletion was sent; its processes may outlive it for a moment.
	forced bool
	// sick: its shim or one of its processes was killed or paused for long by us. It may miss its stop signal and its
	// grace, but nothing else.
	sick bool
	// phase is the furthest that was seen.
	phase string
}

// history holds what the server has acknowledged and shown, and what was done to it.
type history struct {
	mu   sync.Mutex
	pods map[string]*fate // by uid
	// interrupts are the times of the boot clock from a server's Ctrl-C to its end; the last end is 0 while it lasts.
	interrupts [][2]time.Duration
	// ledger is the last number that the server has acknowledged.
	ledger int
}

func (h *history) change(uid, name string, f func(*fate)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pods[uid] == nil {
		h.pods[uid] = &fate{name: name}
	}
	if h.pods[uid].name == "" {
		h.pods[uid].name = name
	}
	f(h.pods[uid])
}

func (h *history) of(uid string) fate {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.pods[uid]; f != nil {
		return *f
	}
	return fate{}
}

func (h *history) created(p *corev1.Pod) {
	h.change(p.GetMetadata().GetUid(), p.GetMetadata().GetName(), func(f *fate) { f.acknowledged = true })
}

func (h *history) interrupt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupts = append(h.interrupts, [2]time.Duration{bootClock(), 0})
}

func (h *history) interrupted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupts[len(h.interrupts)-1][1] = bootClock()
}

// stopping says whether a server was stopping all pods at the time.
func (h *history) stopping(at time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.interrupts {
		if at >= i[0] && (i[1] == 0 || at <= i[1]+stopLag) {
			return true
		}
	}
	return false
}

// stopLag is how long a signal of a server that has ended may take to be written down by a busy machine.
const stopLag = 10 * time.Second

func (h *history) wrote(number int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ledger = max(h.ledger, number)
}

// checkLedger compares the number that the server has with the last that it has acknowledged.
//
// spec: OBJ-2, DEL-13
func (h *history) checkLedger(number int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number < h.ledger {
		return fmt.Errorf("the server acknowledged number %d and has %d", h.ledger, number)
	}
	return nil
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
		case p == nil && f.acknowledged && !f.deleting:
			return fmt.Errorf("pod %s (%s) was created and acknowledged, nobody deleted it, and it is gone", f.name, uid)
		case p != nil && f.deleted && p.GetMetadata().GetDeletionTimestamp() == nil:
			return fmt.Errorf("the deletion of pod %s (%s) was acknowledged and is forgotten", f.name, uid)
		}
	}
	return nil
}

var phases = map[string]int{"": 0, "Pending": 1, "Running": 2, "Succeeded": 3, "Failed": 3}

// see notes the phases that the server shows.
//
// spec: LIFE-1, LIFE-10
func (h *history) see(items []*corev1.Pod) error {
	for _, p := range items {
		var err error
		h.change(p.GetMetadata().GetUid(), p.GetMetadata().GetName(), func(f *fate) {
			phase := p.GetStatus().GetPhase()
			was, is := phases[f.phase], phases[phase]
			if is < was || is == 3 && was == 3 && phase != f.phase {
				err = fmt.Errorf("pod %s (%s) went from %s back to %s", f.name, p.GetMetadata().GetUid(), f.phase, phase)
			}
			f.phase = phase
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// outlived compares processes that ran before and after the server showed these pods.
//
// spec: DEL-7, LIFE-10
func (h *history) outlived(before, after map[string][]process, items []*corev1.Pod) error {
	have := map[string]*corev1.Pod{}
	for _, p := range items {
		have[p.GetMetadata().GetUid()] = p
	}
	for uid, procs := range before {
		p := have[uid]
		if p == nil && h.of(uid).forced {
			continue // for a moment; noStrangers looks at what remains
		}
		if p != nil && phases[p.GetStatus().GetPhase()] < 3 {
			continue
		}
		for _, a := range procs {
			for _, b := range after[uid] {
				switch {
				case a != b:
				case p == nil:
					return fmt.Errorf("process %d still ran when its pod %s (%s) was gone", a.PID, h.of(uid).name, uid)
				default:
					return fmt.Errorf("process %d still ran when its pod %s (%s) was %s",
						a.PID, h.of(uid).name, uid, p.GetStatus().GetPhase())
				}
			}
		}
	}
	return nil
}
