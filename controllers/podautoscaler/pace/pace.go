// Package pace says how fast a number of replicas follows what is measured: what was asked for lately holds it back
// (stabilization), what was changed lately does (policies), and it stays between the least and the most there may be.
//
// It guarantees the answers of Kubernetes, which test/oracle compares over random histories. It has no clock: callers
// say what time it is.
package pace

import (
	"math"
	"time"

	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
)

// DefaultWindow is how long going down waits when nobody says it.
const DefaultWindow = 5 * time.Minute

const (
	// leap and first bound one step up where no behavior is given: twice as many, and four at least.
	leap  = 2
	first = 4
)

// History is what was asked for and done lately. The zero value is that of an autoscaler that nobody has looked at.
type History struct {
	asked     []moment
	ups, down []moment
}

// moment is a number of replicas: one that was asked for, or by how much the number was changed.
type moment struct {
	n  int32
	at time.Time
}

// Empty says whether nothing is known.
func (h *History) Empty() bool { return len(h.asked) == 0 }

// Asked notes that n replicas were asked for.
func (h *History) Asked(n int32, now time.Time) { h.asked = append(h.asked, moment{n, now}) }

// Question is what Decide is asked.
type Question struct {
	// Min and Max are the least and the most replicas there may be; Current is how many there are to be as yet, and
	// Proposed what the measurements ask for.
	Min, Max, Current, Proposed int32
	// Behavior is nil where none is given.
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
	Now      time.Time
}

// Answer is what Decide decides. Reasons and messages are those of conditions AbleToScale, which is True, and
// ScalingLimited, which is Limited.
type Answer struct {
	Replicas                  int32
	Limited                   bool
	AbleReason, AbleMessage   string
	LimitReason, LimitMessage string
}

// Decide says how many replicas there are to be now, and remembers what was proposed.
func (h *History) Decide(q Question) Answer {
	a := Answer{AbleReason: "ReadyForNewScale", AbleMessage: "recommended size matches current size"}
	var stable int32
	if q.Behavior == nil {
		if stable = h.highest(q); stable != q.Proposed {
			a.AbleReason, a.AbleMessage = heldDown()
		}
		a.Replicas, a.LimitReason, a.LimitMessage = bounded(q, stable)
	} else {
		if stable = h.stabilized(q); stable != q.Proposed {
			a.AbleReason, a.AbleMessage = heldDown()
			if q.Proposed >= q.Current {
				a.AbleReason = "ScaleUpStabilized"
				a.AbleMessage = "recent recommendations were lower than current one, applying the lowest recent recommendation"
			}
		}
		a.Replicas, a.LimitReason, a.LimitMessage = h.limited(q, stable)
	}
	a.Limited = a.Replicas != stable
	return a
}

func heldDown() (reason, message string) {
	return "ScaleDownStabilized",
		"recent recommendations were higher than current one, applying the highest recent recommendation"
}

// highest returns the most that was proposed within the window, and remembers what is proposed now.
func (h *History) highest(q Question) int32 {
	most, cutoff := q.Proposed, q.Now.Add(-DefaultWindow)
	h.asked = forget(h.asked, cutoff)
	for _, m := range h.asked {
		most = max(most, m.n)
	}
	h.Asked(q.Proposed, q.Now)
	return most
}

// stabilized moves the number no further than everything within the windows asked for, up and down, and remembers
// what is proposed now.
func (h *History) stabilized(q Question) int32 {
	up := window(q.Behavior.GetScaleUp(), 0)
	down := window(q.Behavior.GetScaleDown(), DefaultWindow)
	upCutoff, downCutoff := q.Now.Add(-up), q.Now.Add(-down)
	least, most := q.Proposed, q.Proposed
	for _, m := range h.asked {
		if m.at.After(upCutoff) {
			least = min(least, m.n)
		}
		if m.at.After(downCutoff) {
			most = max(most, m.n)
		}
	}
	h.asked = forget(h.asked, q.Now.Add(-max(up, down)))
	h.Asked(q.Proposed, q.Now)
	return min(max(q.Current, least), most)
}

func window(r *autoscalingv2.HPAScalingRules, absent time.Duration) time.Duration {
	if r == nil || r.StabilizationWindowSeconds == nil {
		return absent
	}
	return time.Duration(r.GetStabilizationWindowSeconds()) * time.Second
}

// bounded keeps a number within the bounds that hold where no behavior is given.
func bounded(q Question, n int32) (allowed int32, reason, message string) {
	most := max(leap*int64(q.Current), first)
	reason, message = scaleUpLimit()
	if int64(q.Max) <= most {
		most = int64(q.Max)
		reason, message = tooMany()
	}
	switch {
	case n < q.Min:
		reason, message = tooFew()
		return q.Min, reason, message
	case int64(n) > most:
		return int32(most), reason, message //nolint:gosec // below n
	default:
		reason, message = within()
		return n, reason, message
	}
}

// limited keeps a number within the bounds and what the policies allow after what was done lately.
func (h *History) limited(q Question, n int32) (allowed int32, reason, message string) {
	switch {
	case n > q.Current:
		most := max(q.Current, h.upTo(q))
		reason, message = scaleUpLimit()
		if q.Max <= most {
			most = q.Max
			reason, message = tooMany()
		}
		if n > most {
			return most, reason, message
		}
	case n < q.Current:
		least := min(q.Current, h.downTo(q))
		reason, message = "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
		if q.Min >= least {
			least = q.Min
			reason, message = tooFew()
		}
		if n < least {
			return least, reason, message
		}
	}
	reason, message = within()
	return n, reason, message
}

func within() (reason, message string) {
	return "DesiredWithinRange", "the desired count is within the acceptable range"
}

func scaleUpLimit() (reason, message string) {
	return "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
}

func tooMany() (reason, message string) {
	return "TooManyReplicas", "the desired replica count is more than the maximum replica count"
}

func tooFew() (reason, message string) {
	return "TooFewReplicas", "the desired replica count is less than the minimum replica count"
}

// upTo returns how many replicas the policies allow at most.
func (h *History) upTo(q Question) int32 {
	rules := q.Behavior.GetScaleUp()
	highest := rules.GetSelectPolicy() != selectMin
	return h.policies(q, rules, highest, func(before int64, p *autoscalingv2.HPAScalingPolicy) int64 {
		if p.GetType() == inPods {
			return before + int64(p.GetValue())
		}
		// Rounded up, or few replicas would never become more.
		return int64(math.Ceil(float64(before) * (1 + float64(p.GetValue())/100)))
	})
}

// downTo returns how many replicas the policies allow at least.
func (h *History) downTo(q Question) int32 {
	rules := q.Behavior.GetScaleDown()
	highest := rules.GetSelectPolicy() == selectMin
	return h.policies(q, rules, highest, func(before int64, p *autoscalingv2.HPAScalingPolicy) int64 {
		if p.GetType() == inPods {
			return before - int64(p.GetValue())
		}
		return int64(float64(before) * (1 - float64(p.GetValue())/100))
	})
}

const (
	selectMin      = "Min"
	selectDisabled = "Disabled"
	inPods         = "Pods"
)

// policies returns the number that the policies allow: the highest, or the lowest, of what each allows by the number
// before its period.
func (h *History) policies(
	q Question, rules *autoscalingv2.HPAScalingRules, highest bool,
	allow func(before int64, p *autoscalingv2.HPAScalingPolicy) int64,
) int32 {
	if rules.GetSelectPolicy() == selectDisabled || len(rules.GetPolicies()) == 0 {
		return q.Current
	}
	result := int64(math.MaxInt32)
	if highest {
		result = math.MinInt32
	}
	for _, p := range rules.GetPolicies() {
		cutoff := q.Now.Add(-time.Duration(p.GetPeriodSeconds()) * time.Second)
		n := allow(int64(q.Current)-since(h.ups, cutoff)+since(h.down, cutoff), p)
		if highest {
			result = max(result, n)
		} else {
			result = min(result, n)
		}
	}
	return int32(min(max(result, math.MinInt32), math.MaxInt32)) //nolint:gosec // bounded
}

// since returns by how much the number was changed after a time.
func since(list []moment, cutoff time.Time) (sum int64) {
	for _, m := range list {
		if m.at.After(cutoff) {
			sum += int64(m.n)
		}
	}
	return sum
}

// Changed notes that the number was changed. Without a behavior nobody asks for it.
func (h *History) Changed(b *autoscalingv2.HorizontalPodAutoscalerBehavior, from, to int32, now time.Time) {
	if b == nil {
		return
	}
	if to > from {
		h.ups = append(forget(h.ups, now.Add(-longest(b))), moment{to - from, now})
	} else {
		h.down = append(forget(h.down, now.Add(-longest(b))), moment{from - to, now})
	}
}

// longest returns the longest period of all policies.
func longest(b *autoscalingv2.HorizontalPodAutoscalerBehavior) time.Duration {
	var seconds int32
	for _, r := range []*autoscalingv2.HPAScalingRules{b.GetScaleUp(), b.GetScaleDown()} {
		for _, p := range r.GetPolicies() {
			seconds = max(seconds, p.GetPeriodSeconds())
		}
	}
	return time.Duration(seconds) * time.Second
}

// forget removes what was before a time.
func forget(list []moment, cutoff time.Time) []moment {
	kept := list[:0]
	for _, m := range list {
		if !m.at.Before(cutoff) {
			kept = append(kept, m)
		}
	}
	return kept
}
