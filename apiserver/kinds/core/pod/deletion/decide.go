package deletion

import (
	"time"

	"monoplane.dev/rules/grace"
)

// Decide says what a request to delete a pod does. The error is a *Refusal.
func Decide(p Pod, req Request, by Actor, now time.Time) (Decision, error) {
	if broken := req.Expected.Broken(p.UID, p.ResourceVersion); broken != "" { // DEL-5
		return Decision{}, &Refusal{Conflict: true, Message: broken}
	}
	guard, err := entitled(p, req, by)
	if err != nil {
		return Decision{}, err
	}
	d := decide(p, req, now.Truncate(time.Second))
	d.NodeGone = guard
	if forces(req) && (by.Role == User || by.Role == PodGC) {
		d.Forced = true
		d.Unconfirmed = p.Node != "" && !p.Terminal
	}
	return d, nil
}

// forces says whether grace 0 is asked for in so many words. A 0 that comes from the pod's spec is not: no
// controller can force by accident (DEL-14).
func forces(req Request) bool { return req.Grace != nil && *req.Grace == 0 }

func decide(p Pod, req Request, now time.Time) Decision {
	if p.Mark == nil {
		return begin(p, req, now)
	}
	return goOn(p, req, now)
}

// begin handles the first request (DEL-1, DEL-3, DEL-4).
func begin(p Pod, req Request, now time.Time) Decision {
	period := int64(0)
	switch {
	case p.Node == "" || p.Terminal:
		// Nothing runs that would need time.
	case req.Grace != nil:
		period = grace.Asked(*req.Grace)
	default:
		period = grace.Own(p.SpecGrace)
	}
	d := end(p, Mark{Deadline: deadline(now, period), Grace: period})
	d.Begins = true
	return d
}

// goOn handles every further request: the period may only shrink, counted from the first request (DEL-2).
func goOn(p Pod, req Request, now time.Time) Decision {
	old := *p.Mark
	if old.Grace <= 0 {
		// Already as short as can be. Without finalizers such a pod would be gone, so one that is here with none
		// left is completed.
		d := end(p, old)
		if d.Outcome == Marked {
			d.Outcome = Unchanged
		}
		return d
	}
	if req.Grace == nil || grace.Asked(*req.Grace) >= old.Grace {
		return Decision{Outcome: Unchanged, Mark: old}
	}
	period := grace.Asked(*req.Grace)
	m := Mark{Deadline: deadline(old.Deadline, period-old.Grace), Grace: period}
	if m.Deadline.Before(now) {
		m.Deadline = now
		m.Grace = min(period, 1)
	}
	return end(p, m)
}

// end says whether a pod with mark m stays. Time alone removes nothing: only a period of 0 does (DEL-6).
func end(p Pod, m Mark) Decision {
	if m.Grace == 0 && !p.Finalizers {
		return Decision{Outcome: Removed, Mark: m}
	}
	return Decision{Outcome: Marked, Mark: m}
}

func deadline(now time.Time, seconds int64) time.Time { return now.Add(grace.Duration(seconds)) }
