package lifecycle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Mark is what a container has left in the journal.
type Mark struct {
	Time      time.Time
	Container string
	What      string
}

func (m Mark) String() string { return m.Container + "." + m.What }

// History is what was seen of a pod: what the API has said of it, and what its processes did. It is safe for
// concurrent use.
type History struct {
	mu      sync.Mutex
	pods    []*corev1.Pod // as the API showed it, one after the other
	gone    bool
	marks   []Mark
	changed chan struct{}
}

// Saw takes in the object as it is now; nil says that it was removed.
func (h *History) Saw(p *corev1.Pod) {
	h.change(func() {
		if p == nil {
			h.gone = true
			h.marks = append(h.marks, Mark{Time: time.Now(), Container: "pod", What: "GONE"})
			return
		}
		if ready(p) && !ready(h.last()) {
			h.marks = append(h.marks, Mark{Time: time.Now(), Container: "pod", What: "READY"})
		}
		if !ready(p) && ready(h.last()) {
			h.marks = append(h.marks, Mark{Time: time.Now(), Container: "pod", What: "NOT-READY"})
		}
		h.pods = append(h.pods, p)
	})
}

// Marked takes in all marks that have been left.
func (h *History) Marked(all ...Mark) {
	h.change(func() { h.marks = append(h.marks, all...) })
}

func (h *History) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// ask calls f, which must not keep the history, and returns a channel that closes at the next change.
func (h *History) ask(f func() bool) (bool, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return f(), h.changed
}

// String tells all that was seen.
func (h *History) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, m := range h.marks {
		fmt.Fprintf(&b, "%s %s\n", m.Time.Format("05.000"), m)
	}
	for _, p := range h.pods {
		fmt.Fprintf(&b, "%s", p.Status.Phase)
		for _, c := range p.Status.Conditions {
			fmt.Fprintf(&b, " %s=%s", c.Type, c.Status)
		}
		for _, s := range statuses(p) {
			fmt.Fprintf(&b, " %s:%s/%d", s.Name, word(s.State), s.RestartCount)
		}
		b.WriteByte('\n')
	}
	if h.gone {
		b.WriteString("gone\n")
	}
	return b.String()
}

func (h *History) last() *corev1.Pod {
	if len(h.pods) == 0 {
		return &corev1.Pod{}
	}
	return h.pods[len(h.pods)-1]
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (h *History) phases() []string {
	var out []string
	for _, p := range h.pods {
		out = append(out, string(p.Status.Phase))
	}
	return slices.Compact(out)
}

func (h *History) condition(kind string) []string {
	var out []string
	for _, p := range h.pods {
		for _, c := range p.Status.Conditions {
			if string(c.Type) == kind {
				out = append(out, string(c.Status))
			}
		}
	}
	return slices.Compact(out)
}

func (h *History) marksOf(container string) []string {
	var out []string
	for _, m := range h.marks {
		if m.Container == container {
			out = append(out, m.What)
		}
	}
	return out
}

// at returns the place of the first mark written as CONTAINER.MARK, or of the N-th as CONTAINER.MARK#N; -1 for none.
func (h *History) at(mark string) int {
	mark, text, _ := strings.Cut(mark, "#")
	n, err := strconv.Atoi(text)
	if err != nil {
		n = 1
	}
	return slices.IndexFunc(h.marks, func(m Mark) bool {
		if m.String() == mark {
			n--
		}
		return n == 0
	})
}

// failedStarts counts the instances of a container whose start has failed, as the API said.
func (h *History) failedStarts(container string) int {
	ids := make(map[string]bool)
	for _, p := range h.pods {
		s := status(p, container)
		for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
			if t := state.Terminated; t != nil && t.Reason == "StartError" {
				ids[t.ContainerID] = true
			}
		}
	}
	return len(ids)
}

func statuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses)
}

func status(p *corev1.Pod, container string) corev1.ContainerStatus {
	for _, s := range statuses(p) {
		if s.Name == container {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// word says in one word what state a container is in.
func word(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return s.Waiting.Reason
	case s.Terminated != nil:
		return s.Terminated.Reason
	default:
		return "unknown"
	}
}
