package podstate

import (
	"fmt"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// ProbeKind says what a probe is for.
type ProbeKind uint8

// The kinds of probes.
const (
	// StartupProbe holds the others back until it has succeeded; its failure ends the container.
	StartupProbe ProbeKind = iota
	// ReadinessProbe says whether the container is ready.
	ReadinessProbe
	// LivenessProbe ends the container by its failure.
	LivenessProbe

	probeKinds
)

// String returns the kind's name as events have it.
func (k ProbeKind) String() string { return [...]string{"Startup", "Readiness", "Liveness"}[k] }

// Of returns the container's probe of the kind, nil for none.
func (k ProbeKind) Of(c *corev1.Container) *corev1.Probe {
	switch k {
	case StartupProbe:
		return c.GetStartupProbe()
	case ReadinessProbe:
		return c.GetReadinessProbe()
	default:
		return c.GetLivenessProbe()
	}
}

// ProbeResult is what one attempt of a probe came to.
type ProbeResult uint8

// The results of an attempt.
const (
	// ProbeUnknown means that the attempt could not be made, or its result is not known: nothing follows from it.
	ProbeUnknown ProbeResult = iota
	// ProbeSuccess means that the container answered as it should.
	ProbeSuccess
	// ProbeFailure means that it did not.
	ProbeFailure
)

// probe is one probe of one running instance of a container.
//
//	  held ────────────────────► waiting ◄────────────────────┐ not enough in a row: the verdict stays
//	until initialDelaySeconds      │                          │
//	after the start, and until     │ a period after           │ Unknown: not counted
//	the startup probe has passed   ▼ the last attempt         │
//	                             asked ─────────────────► answered
//	                                                          │ successThreshold or failureThreshold in a row
//	                                                          ▼
//	                                                       verdict ──► waiting
//	                                                          │ of a startup probe, or Failure of a liveness probe
//	                                                          ▼
//	                                                        over
//
// While a startup or readiness probe waits, and nothing has succeeded yet, there are early attempts besides: a success
// counts, and the period begins with it; anything else is as if it had not been asked for.
//
// A verdict holds until there is another one. Before the first one a readiness probe counts as failed and a liveness
// probe as passed.
type probe struct {
	// due is when the next attempt is to be made; zero before the first.
	due time.Time
	// verdict is Unknown before there is one.
	verdict ProbeResult
	// last is the result of the last attempt that had one, row how often it came in a row.
	last ProbeResult
	row  int32
	// attempt counts the attempts that were asked for.
	attempt uint32
	// asked: the last one has not been answered. early: it was made before its time.
	asked, early bool
	// at is when the last one was asked for, look when the next early one is to be made at the soonest.
	at, look time.Time
	// unwell is since when there has been no success.
	unwell time.Time
}

// The pause before an early attempt. It grows with the time without success, of which it is a part (lookShare), until
// it is longer than the period, and with the time that the last attempt has taken (lookRest times that).
const (
	lookPause = 100 * time.Millisecond // at least
	lookShare = 32
	lookRest  = 4
	// refusedPause is the least pause after an attempt that could not be made.
	refusedPause = time.Second
)

// over reports whether there will be no more attempts with this instance.
func (p *probe) over(kind ProbeKind) bool {
	return kind == StartupProbe && p.verdict != ProbeUnknown || kind == LivenessProbe && p.verdict == ProbeFailure
}

// planProbes asks for the attempts that are due. One that would be due soon goes along, so that the probes of a pod
// come to share their wake-ups.
func (m *StateMachine) planProbes() {
	soon := false
	m.eachProbe(func(i int, p *probe, _ ProbeKind, spec *corev1.Probe) {
		soon = soon || !m.now.Before(m.containers[i].dueProbe(p, spec))
	})
	m.eachProbe(func(i int, p *probe, kind ProbeKind, spec *corev1.Probe) {
		c := &m.containers[i]
		period := period(spec)
		at := c.dueProbe(p, spec)
		if soon && !p.due.IsZero() {
			at = at.Add(-period / 10)
		}
		early := m.now.Before(at)
		if early {
			m.due(c.dueProbe(p, spec))
			if !m.looksEarly(c, p, kind) {
				return
			}
			if m.now.Before(p.look) {
				m.due(p.look)
				return
			}
		} else {
			p.due = m.now.Add(period)
		}
		if p.unwell.IsZero() {
			p.unwell = m.now
		}
		p.asked, p.early, p.at = true, early, m.now
		p.attempt++
		m.do(Probe{Index: i, ID: c.ID, Kind: kind, Attempt: p.attempt, Early: early})
	})
}

// looksEarly reports whether there are attempts before their time: the first one is never early, nor is one that only
// adds to a row of successes. spec: PROBE-2
func (m *StateMachine) looksEarly(c *container, p *probe, kind ProbeKind) bool {
	return kind != LivenessProbe && !p.due.IsZero() && p.verdict != ProbeSuccess && p.last != ProbeSuccess &&
		m.life == Active && c.stops == 0
}

// dueProbe returns when the next attempt is to be made.
func (c *container) dueProbe(p *probe, spec *corev1.Probe) time.Time {
	if p.due.IsZero() {
		return c.StartedAt.Add(time.Duration(spec.GetInitialDelaySeconds()) * time.Second)
	}
	return p.due
}

// eachProbe calls f with every probe of which an attempt may be made: none of a container that is ended because one
// has failed, and while a container is being stopped only those of readiness. spec: PROBE-3, PROBE-4
func (m *StateMachine) eachProbe(f func(i int, p *probe, kind ProbeKind, spec *corev1.Probe)) {
	for i := range m.containers {
		k := m.containers[i].care
		if k == nil || m.containers[i].State != Running || k.doom != spared {
			continue
		}
		started := m.started(i)
		for kind := range probeKinds {
			p, spec := &k.probes[kind], kind.Of(m.spec(i))
			ending := m.life != Active || m.containers[i].stops > 0
			if spec == nil || m.posting(i) || p.asked || p.over(kind) || started != (kind != StartupProbe) ||
				ending && kind != ReadinessProbe {
				continue
			}
			f(i, p, kind, spec)
		}
	}
}

// probed takes in what an attempt came to. An instance that is no longer the newest, or has ended, is none of its
// business. spec: PROBE-2, PROBE-3
func (m *StateMachine) probed(in Probed) {
	c := m.cared(in.Index, in.ID)
	if c == nil || in.Kind >= probeKinds {
		return
	}
	p, spec := &c.care.probes[in.Kind], in.Kind.Of(m.spec(in.Index))
	if !p.asked || p.attempt != in.Attempt {
		return
	}
	p.asked = false
	if c.State != Running || m.life != Active && in.Kind != ReadinessProbe {
		return
	}
	pause := max(lookPause, m.now.Sub(p.unwell)/lookShare, m.now.Sub(p.at)*lookRest)
	if in.Result == ProbeUnknown {
		pause = max(pause, refusedPause)
	}
	p.look = m.now.Add(pause)
	if p.early {
		if in.Result == ProbeUnknown || in.Result == ProbeFailure && m.now.Before(p.due) {
			return
		}
		p.due = p.at.Add(period(spec))
	}
	switch in.Result {
	case ProbeUnknown:
		m.do(Note{Warning: true, Reason: "Unhealthy", Container: c.Name, Message: fmt.Sprintf(
			"%s probe errored and resulted in unknown state: %s", in.Kind, in.Message)})
		return
	case ProbeSuccess:
		if in.Message != "" {
			m.do(Note{Warning: true, Reason: "ProbeWarning", Container: c.Name, Message: fmt.Sprintf(
				"%s probe warning: %s", in.Kind, in.Message)})
		}
	case ProbeFailure:
		m.do(Note{Warning: true, Reason: "Unhealthy", Container: c.Name, Message: fmt.Sprintf(
			"%s probe failed: %s", in.Kind, in.Message)})
	}
	if in.Result != p.last {
		p.last, p.row = in.Result, 0
	}
	enough := orElse(spec.GetSuccessThreshold(), 1)
	if in.Result == ProbeFailure {
		enough = orElse(spec.GetFailureThreshold(), 3)
	}
	if p.row = min(p.row+1, enough); p.row < enough {
		return
	}
	if in.Result == ProbeFailure && p.verdict == ProbeSuccess {
		p.unwell, p.look = m.now, m.now.Add(lookPause)
	}
	p.verdict = in.Result
	if in.Result == ProbeFailure && c.care.doom == spared {
		switch in.Kind {
		case StartupProbe:
			c.care.doom = failedStartup
		case LivenessProbe:
			c.care.doom = failedLiveness
		}
	}
}

// period returns the time from one attempt to the next.
func period(spec *corev1.Probe) time.Duration {
	return time.Duration(orElse(spec.GetPeriodSeconds(), 10)) * time.Second
}

// orElse returns n, or what is meant when it is not given.
func orElse(n, missing int32) int32 {
	if n > 0 {
		return n
	}
	return missing
}
