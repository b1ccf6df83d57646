package naive

import (
	"fmt"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/test/objects"
)

// What is kept about nodes for the pods of a template changes nothing: on a snapshot that changes all the time,
// decisions about pods of the same few templates are what they are on a snapshot that was made at once and knows
// nothing yet.
//
// spec: SCHED-7
func TestKeptAnswersHold(t *testing.T) {
	r := newReferee(t)
	counts := objects.Counts{}
	first, last := 0, 250
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	for seed := first; seed < last; seed++ {
		d := NewDice(uint64(seed)) //nolint:gosec // not negative
		n := d.plea(r.filters)
		n.budgets = nil
		templates := []*corev1.Pod{n.pod, d.pod("second"), d.Pending("third")}
		templates[1].Spec.Priority = d.priority()
		calls := 0
		n.history(d, func(s *framework.Snapshot) {
			d.keepRoom(s)
			for i := range 6 {
				calls++
				p := object.Clone(templates[i%3])
				p.Metadata.Uid = fmt.Sprint("call", calls)
				p.Spec = templates[i%3].Spec // as pods of one template share it
				if d.one(4) {
					p.Spec = object.Clone(p.Spec) // as those that came another way do not
				}
				pod := framework.NewPodInfo(p)
				kept := r.profile.Schedule(&framework.CycleState{}, pod, s, framework.NewSearcher(1))
				anew := r.profile.Schedule(&framework.CycleState{}, pod, remade(s), framework.NewSearcher(1))
				if a, b := told(kept), told(anew); a != b {
					t.Fatalf("seed %d: on the snapshot that changed: %s\nmade at once: %s\npod %s", seed, a, b, p.AppendJSON(nil))
				}
				counts[outcomeOf(kept)]++
			}
		})
	}
	if *onlySeed < 0 {
		counts.Floors(t, map[string]int{"placed": 1000, "refused": 1000, "makes room": 200})
	}
}

// keepRoom keeps room on a node for pods that are never asked about, or for none.
func (d Dice) keepRoom(s *framework.Snapshot) {
	if len(s.Nodes()) == 0 {
		return
	}
	n := s.Nodes()[d.IntN(len(s.Nodes()))]
	var kept []*framework.PodInfo
	for i := range max(0, d.IntN(4)-2) {
		p := d.pod(fmt.Sprint("kept", i))
		p.Spec.Priority = d.priority()
		kept = append(kept, framework.NewPodInfo(p))
	}
	s.Set(n.Name, n.WithNominated(kept))
}

// remade is the same snapshot without anything that it has worked out.
func remade(s *framework.Snapshot) *framework.Snapshot {
	fresh := framework.NewSnapshot()
	for name, labels := range s.Namespaces() {
		fresh.SetNamespace(name, labels)
	}
	for _, n := range s.Nodes() {
		fresh.Set(n.Name, n)
	}
	return fresh
}

func outcomeOf(d framework.Decision) string {
	switch {
	case d.Node != "":
		return "placed"
	case d.Nomination != nil && d.Nomination.Node != "":
		return "makes room"
	default:
		return "refused"
	}
}

// told is a decision in words.
func told(d framework.Decision) string {
	text := fmt.Sprintf("node %q of %d that fit, %d evaluated, error %v", d.Node, d.Feasible, d.Evaluated, d.Err)
	if d.Diagnosis != nil {
		text += ", " + d.Diagnosis.Message()
	}
	if d.Nomination != nil {
		text += ", room on " + d.Nomination.Node + " without"
		for _, v := range d.Nomination.Victims {
			text += " " + v.UID
		}
	}
	return text
}
