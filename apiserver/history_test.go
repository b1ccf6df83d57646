package apiserver_test

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"monoplane.dev/rules/lingering"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// history is what a watch saw, beside what clients were told.
type history struct {
	rt     *rapid.T
	events []*corev1rpc.PodEvent
	nodes  []*corev1rpc.NodeEvent
	acked  []done
}

func (h *history) check() {
	// What wanted the revision before made the one that it was answered with; others may just have found it, and fit as
	// well.
	slices.SortStableFunc(h.acked, func(a, b done) int { return int(b2i(a.wanted == "") - b2i(b.wanted == "")) })
	live := map[string]*corev1.Pod{} // by name
	gone := map[string]bool{}        // by uid
	used := map[int]bool{}           // acknowledged operations that have explained a change
	for _, e := range h.events {
		now := e.Object
		name, uid := now.Metadata.Name, now.Metadata.Uid
		was := live[name]
		if gone[uid] {
			h.rt.Fatalf("resurrection: %s of %s after its deletion", e.Type, uid)
		}
		switch e.Type {
		case "ADDED":
			if was != nil {
				h.rt.Fatalf("%s was added over %v", name, was)
			}
			h.explain(used, nil, now, func(d done) string { return h.created(d, now) })
			live[name] = now
		case "MODIFIED":
			if was == nil || was.Metadata.Uid != uid {
				h.rt.Fatalf("%s was modified without having been added: %v", name, now)
			}
			h.explain(used, was, now, func(d done) string { return h.modified(d, was, now) })
			live[name] = now
		case "DELETED":
			if was == nil || was.Metadata.Uid != uid {
				h.rt.Fatalf("%s was deleted without having been added: %v", name, now)
			}
			h.explainGone(used, was, now)
			gone[uid] = true
			delete(live, name)
		}
	}
	h.everythingAcknowledgedHappened(used)
}

// explain finds the acknowledged operation of a revision. Operations that changed nothing were answered with
// the same revision, so one that fits is looked for.
func (h *history) explain(used map[int]bool, was, now *corev1.Pod, model func(done) string) {
	why := "no operation was acknowledged for this change"
	for i, d := range h.acked {
		bind := d.kind == "bind" && was != nil && was.Spec.NodeName == "" && now.Spec.NodeName != ""
		// What removed the pod was answered with the revision that it had last.
		if used[i] || d.gone || d.uid != now.Metadata.Uid || (d.rv != now.Metadata.ResourceVersion && !bind) {
			continue
		}
		refuted := model(d)
		if refuted == "" {
			used[i] = true
			return
		}
		why += "\n" + refuted + ": " + d.operation.String()
	}
	h.rt.Fatalf("%s\nwas %v\nnow %v", why, was, now)
}

func (h *history) explainGone(used map[int]bool, was, now *corev1.Pod) {
	for i, d := range h.acked {
		if used[i] || d.uid != was.Metadata.Uid || !d.gone {
			continue
		}
		if why := h.removed(d, was, now); why != "" {
			h.rt.Fatalf("%s\noperation %v\nwas %v", why, d.operation, was)
		}
		used[i] = true
		return
	}
	h.rt.Fatalf("no operation was acknowledged for the removal of %v", was)
}

// everythingAcknowledgedHappened: what changed nothing must have had nothing to change; an acknowledged change
// that no revision shows is a lost update.
func (h *history) everythingAcknowledgedHappened(used map[int]bool) {
	last := map[string]*corev1.Pod{}
	for _, e := range h.events {
		if e.Type != "DELETED" {
			last[e.Object.Metadata.Uid] = e.Object
		}
	}
	for i, d := range h.acked {
		if used[i] {
			if p := last[d.uid]; d.key != "" && p.Metadata.Annotations[d.key] == "" {
				h.rt.Fatalf("lost update: %v left no trace in %v", d.operation, p)
			}
			continue
		}
		switch d.kind {
		case "bind", "annotate", "update", "create":
			h.rt.Fatalf("lost update: %v was acknowledged at %s and never happened", d.operation, d.rv)
		case "delete":
			if d.gone {
				h.rt.Fatalf("lost deletion: %v was acknowledged for %s", d.operation, d.uid)
			}
			if d.wanted != "" && d.wanted != d.rv {
				h.rt.Fatalf("DEL-5: %v wanted revision %s and was acknowledged at %s", d.operation, d.wanted, d.rv)
			}
		}
	}
}

// What follows is the model: what the specification says an operation does to a pod.

func (h *history) created(d done, now *corev1.Pod) string {
	m := now.Metadata
	if d.kind != "create" || m.DeletionTimestamp != nil || m.Generation != 1 || now.Status.Phase != "Pending" ||
		now.Spec.NodeName != "" {
		return "a pod begins unbound, pending and unmarked"
	}
	return ""
}

func (h *history) modified(d done, was, now *corev1.Pod) string {
	w, n := was.Metadata, now.Metadata
	bound := was.Spec.NodeName == "" && now.Spec.NodeName != ""
	marks := w.GetDeletionTimestamp() == nil && n.GetDeletionTimestamp() != nil
	switch {
	case d.wanted != "" && d.wanted != w.ResourceVersion:
		return "DEL-5: another revision was wanted: " + d.wanted
	case was.Spec.NodeName != "" && was.Spec.NodeName != now.Spec.NodeName:
		return "LIFE-2: a bound pod moved"
	case bound && (d.kind != "bind" || d.node != now.Spec.NodeName || marked(was) || terminal(was)):
		return "SCHED-3, DEL-11: bound against the rules"
	case bound && !h.nodePresent(now.Spec.NodeName, n.ResourceVersion):
		return "bound to a node that does not exist"
	case marked(was) && !marked(now):
		return "a deletion was taken back"
	case marked(was) && n.GetDeletionGracePeriodSeconds() > w.GetDeletionGracePeriodSeconds():
		return "DEL-2: grace was lengthened"
	case marked(was) && len(n.Finalizers) > len(w.Finalizers):
		return "DEL-6: a finalizer was added to a terminating pod"
	case rank(now) < rank(was) || (terminal(was) && now.Status.Phase != was.Status.Phase):
		return "LIFE-1, LIFE-10: the phase went back"
	case n.Generation != w.Generation+b2i(marks):
		return "OBJ-5: generation grows with the start of a deletion, and no update here changes the spec"
	}
	switch {
	case !bound && !maps.Equal(w.Annotations, n.Annotations) &&
		(d.key == "" || n.Annotations[d.key] == "" || w.Annotations[d.key] != ""):
		return "another operation annotated"
	case !slices.Equal(w.Finalizers, n.Finalizers) && d.kind != "hold" && d.kind != "release":
		return "another operation changed the finalizers"
	}
	if changed := !timeOf(n.DeletionTimestamp).Equal(timeOf(w.DeletionTimestamp)) ||
		n.GetDeletionGracePeriodSeconds() != w.GetDeletionGracePeriodSeconds(); changed || marks {
		return h.remarked(d, was, now)
	}
	if now.Status.Phase != was.Status.Phase {
		return h.phased(d, was, now)
	}
	return ""
}

// remarked judges a deletion that began or was shortened.
func (h *history) remarked(d done, was, now *corev1.Pod) string {
	if d.kind != "delete" {
		return "only a deletion marks"
	}
	m := now.Metadata
	grace, deadline := m.GetDeletionGracePeriodSeconds(), timeOf(m.DeletionTimestamp)
	forced := d.grace != nil && *d.grace == 0
	if forced && (d.by == "namespace" || d.by == "scheduler") {
		return "DEL-8: a controller forced"
	}
	if !marked(was) {
		want := int64(0)
		switch {
		case was.Spec.NodeName == "" || lingering.Confirmed(was): // DEL-3
		case forced: // DEL-4
		case d.grace != nil && *d.grace < 0:
			want = 1
		case d.grace != nil:
			want = *d.grace
		default:
			want = max(1, graceOf(was)) // DEL-14
		}
		begun := deadline.Add(-time.Duration(grace) * time.Second)
		if grace != want || begun.Before(d.begun) || begun.After(d.ended) {
			return "DEL-1: want grace " + strconv.FormatInt(want, 10)
		}
		if grace == 0 && len(m.Finalizers) == 0 {
			return "nothing holds this pod"
		}
		return ""
	}
	if d.grace == nil {
		return "DEL-2: an absent period changes nothing"
	}
	w := was.Metadata
	want := max(*d.grace, 0)
	if *d.grace < 0 {
		want = 1
	}
	exact := timeOf(w.DeletionTimestamp).Add(time.Duration(want-w.GetDeletionGracePeriodSeconds()) * time.Second)
	if deadline.Equal(exact) && grace == want {
		return ""
	}
	if exact.Before(d.ended) && grace == min(want, 1) && !deadline.Before(d.begun) && !deadline.After(d.ended) {
		return "" // already past: now
	}
	return "DEL-2: shortened wrongly"
}

// phased judges who wrote a phase (LIFE-10).
func (h *history) phased(d done, was, now *corev1.Pod) string {
	node := was.Spec.NodeName
	own := d.by == node
	switch {
	case d.kind != "phase":
		return "only a status write changes the phase"
	case (d.by == "n1" || d.by == "n2") && !own:
		return "an agent wrote about another node's pod"
	case !terminal(now) || own:
		return ""
	case node == "" && d.by == "podgc" && marked(was), node == "" && d.by == "user":
		return ""
	case node != "" && d.by == "podgc" && !h.nodePresent(node, now.Metadata.ResourceVersion):
		return ""
	case node != "" && d.by == "user" && !lingering.Confirmed(now):
		return ""
	default:
		return "LIFE-10: this identity may not end this pod"
	}
}

// removed judges who removed a pod, and in which state.
func (h *history) removed(d done, was, now *corev1.Pod) string {
	if d.kind == "release" {
		if !marked(was) || was.Metadata.GetDeletionGracePeriodSeconds() != 0 {
			return "DEL-6: the last finalizer completes only what is due"
		}
		return ""
	}
	forced := d.grace != nil && *d.grace == 0
	node := was.Spec.NodeName
	switch {
	case d.wanted != "" && d.wanted != was.Metadata.ResourceVersion:
		return "DEL-5: another revision was wanted: " + d.wanted
	case len(was.Metadata.Finalizers) > 0:
		return "DEL-6: finalizers hold"
	case !forced && marked(was):
		return "only grace 0 ends a deletion that has begun"
	case !forced:
		if node != "" && !lingering.Confirmed(was) {
			return "DEL-3: the pod may still run"
		}
		if d.by == "n1" || d.by == "n2" {
			return "DEL-8: an agent began a deletion"
		}
		return ""
	case d.by == "user":
		return ""
	case d.uid == "" || d.operation.uid == "none":
		return "DEL-11: without uid"
	case d.by == node && marked(was) && lingering.Confirmed(was):
		return ""
	case d.by == "podgc" && node == "" && (marked(was) || terminal(was)):
		return ""
	case d.by == "podgc" && lingering.Confirmed(was) && !lostNode(was):
		return ""
	case d.by == "podgc" && node != "" && !h.nodePresent(node, now.Metadata.ResourceVersion):
		return ""
	default:
		return "DEL-8: this identity may not remove this pod"
	}
}

func marked(p *corev1.Pod) bool { return p.Metadata.DeletionTimestamp != nil }

func terminal(p *corev1.Pod) bool { return rank(p) == 2 }

func rank(p *corev1.Pod) int {
	switch p.Status.Phase {
	case "Running":
		return 1
	case "Succeeded", "Failed":
		return 2
	default:
		return 0
	}
}

func lostNode(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c *corev1.PodCondition) bool {
		return c.Type == "DisruptionTarget" && c.Status == "True" && c.Reason == "DeletionByPodGC"
	})
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// nodePresent says whether a node existed just before a revision.
func (h *history) nodePresent(name, rv string) bool {
	present := false
	for _, e := range h.nodes {
		if e.Object.Metadata.Name == name && revision(e.Object.Metadata.ResourceVersion) < revision(rv) {
			present = e.Type != "DELETED"
		}
	}
	return present
}

// revision is a resourceVersion as a number, 0 when there is none.
func revision(rv string) int64 {
	n, _ := strconv.ParseInt(rv, 10, 64)
	return n
}
