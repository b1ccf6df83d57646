package podstate

import (
	"slices"
	"time"
)

// box is a sandbox and what we did to it.
type box struct {
	Sandbox
	// stopped: StopSandbox has succeeded, so no process is left in it.
	stopped bool
}

// What an instance ends as when its record is lost. The code is that of a killed process.
const (
	lostReason  = "ContainerStatusUnknown"
	lostMessage = "The container could not be located"
	lostCode    = 137
)

// observed takes the answer to Observe, or what the runtime told by itself.
func (m *StateMachine) observed(in Observed) {
	if !in.Asked {
		m.see(in.Seen, false)
		return
	}
	if in.Err != "" {
		m.observe.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
		m.observeAgain = true
		m.stopFailed("a look at what runs", in.Err)
		return
	}
	m.observe.done()
	whole := m.observeWhole && m.idle()
	m.see(in.Seen, whole)
	m.observeLater = m.observeLater || !whole
}

// see takes an observation into the state. A whole one shows everything that the runtime has of the pod at a
// moment when nothing was being started, so what is missing from it is gone.
func (m *StateMachine) see(seen Observation, whole bool) {
	if m.removed {
		return
	}
	clean := whole
	for _, s := range seen.Sandboxes {
		m.seeSandbox(s, whole)
		clean = clean && !s.Ready
	}
	for _, in := range seen.Instances {
		m.seeInstance(in, whole)
		clean = clean && in.State == Exited
		if in.State == Running {
			m.confirmed = false
		}
	}
	if whole {
		m.seeMissing(seen)
		m.confirmed = clean
	}
}

// seeSandbox takes a sandbox in. One that is new and not the newest is believed only in a whole observation:
// it may have been removed.
func (m *StateMachine) seeSandbox(s Sandbox, whole bool) {
	at := len(m.sandboxes)
	for i := range m.sandboxes {
		b := &m.sandboxes[i]
		if b.ID == s.ID {
			if whole && s.Ready && b.stopped {
				// It was stopped in vain: again, after a while.
				b.stopped = false
				m.stopBox.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
			}
			b.Ready = b.Ready && s.Ready // readiness does not come back
			if len(s.IPs) > 0 {
				b.IPs = s.IPs
			}
			return
		}
		if b.Attempt >= s.Attempt && i < at {
			at = i
		}
	}
	if !whole && at < len(m.sandboxes) {
		return
	}
	if s.Ready {
		m.confirmed = false
	}
	m.sandboxes = append(m.sandboxes, box{})
	copy(m.sandboxes[at+1:], m.sandboxes[at:])
	m.sandboxes[at] = box{Sandbox: s}
}

// seeInstance takes an instance in: it is the one we know, a newer one, or one that is left over.
func (m *StateMachine) seeInstance(in Instance, whole bool) {
	if in.State == Running {
		m.spare(in.ID)
	}
	if s := m.strayByID(in.ID); s != nil {
		m.seeStray(s, in, whole)
		return
	}
	if c := m.byID(in.ID); c != nil {
		switch {
		case !whole:
		case c.State == Exited && in.State == Running, c.State == Running && in.State == Created:
			m.disagree(c, in)
			return
		default:
			c.doubts = 0
		}
		m.merge(c, in)
		return
	}
	if m.adopt(in) {
		return
	}
	last := m.lastWithID(in.ID) != nil
	switch {
	case in.State != Running && (!whole || last):
		// Being created, or being removed.
	case last && !whole:
		m.observeAgain = true // most likely from before its end
	default:
		m.addStray(in)
	}
}

// adopt makes an instance of which nothing was known the newest one of its container if its turn has come.
func (m *StateMachine) adopt(in Instance) bool {
	i := m.index(in.Name)
	if i < 0 || in.State == Created {
		return false
	}
	in.StartedAt, in.FinishedAt, in.Settings = m.anchor(in.StartedAt), m.anchor(in.FinishedAt), nil
	c := &m.containers[i]
	switch {
	case c.State == None && in.Attempt >= c.floor:
		c.Instance = in
		m.freshen(i)
	case c.State != None && in.Attempt > c.Attempt:
		m.supersede(i, in)
		m.freshen(i)
	case in.State == Exited && c.last == nil && in.Attempt < c.Attempt && c.State == Running:
		c.last = &in
	default:
		return false
	}
	return true
}

// disagree deals with a container that has come less far by what the runtime shows than by what we know: it has ended
// and runs, or runs and was never started. A look that began before says that once; who says it twice is believed.
func (m *StateMachine) disagree(c *container, in Instance) {
	if c.doubts++; c.doubts > 1 {
		c.doubts = 0
		if in.State == Created {
			m.neverRan(c)
			return
		}
		c.Instance = in
		return
	}
	m.observeAgain = true
	m.observe.wait(m.now.Add(m.host.Policy.RuntimeDelay))
}

// neverRan ends an instance that was said to have been started, and was not. Nothing is started in its place until it
// is removed and cannot start any more.
func (m *StateMachine) neverRan(c *container) {
	m.lose(&c.Instance)
	m.discard(c.ID, m.index(c.Name), c.Attempt)
	for i := range m.dead {
		if m.dead[i].id == c.ID {
			m.dead[i].unstarted = true
		}
	}
}

// merge takes in what an instance that we know has come to. States only grow.
func (m *StateMachine) merge(c *container, in Instance) {
	m.compare(c, in.Settings)
	in.Settings = nil
	if in.State <= c.State {
		c.Unclear = c.Unclear || c.State == Running && in.Unclear // a stop of it has begun
		if in.State == Running && c.StartedAt.IsZero() {
			c.StartedAt = m.anchor(in.StartedAt)
		}
		return
	}
	if in.Delay == 0 {
		in.Delay = c.Delay
	}
	if in.Hash == "" {
		in.Hash = c.Hash
	}
	if in.SandboxID == "" {
		in.SandboxID = c.SandboxID
	}
	if in.Facts == nil {
		in.Facts = c.Facts
	}
	if !c.StartedAt.IsZero() {
		in.StartedAt = c.StartedAt // tied to this process's time while it ran
	}
	in.StartedAt, in.FinishedAt = m.anchor(in.StartedAt), m.anchor(in.FinishedAt)
	c.Instance = in
	if in.State == Exited {
		m.discardLast(c) // one dead instance is kept, the newest
	}
}

// supersede makes in the newest instance of container i. Stops in flight are those of the old one.
func (m *StateMachine) supersede(i int, in Instance) {
	c := &m.containers[i]
	old := container{Instance: c.Instance, stop: c.stop, stops: c.stops, termAt: c.termAt, killAt: c.killAt}
	c.Instance = in
	c.stop, c.stops, c.termAt, c.killAt = retry{}, 0, time.Time{}, time.Time{}
	if old.State == Running {
		m.strays = append(m.strays, stray{container: old})
		m.reportStray(&old.Instance)
		return
	}
	m.discardLast(c)
	c.last, c.lastRemoved = &old.Instance, false
	if in.State == Exited {
		m.discardLast(c)
	}
}

// discardLast has the container of the instance before the newest one removed. What is known of it stays.
func (m *StateMachine) discardLast(c *container) {
	if c.last != nil && !c.lastRemoved {
		c.lastRemoved = true
		m.discard(c.last.ID, m.index(c.Name), c.last.Attempt)
	}
}

// Missing returns what is there as far as is known, and that an observation does not show.
func (m *StateMachine) Missing(seen *Observation) (out Observation) {
	for i := range m.sandboxes {
		if b := &m.sandboxes[i]; b.Ready && !slices.ContainsFunc(seen.Sandboxes, func(s Sandbox) bool {
			return s.ID == b.ID
		}) {
			out.Sandboxes = append(out.Sandboxes, b.Sandbox)
		}
	}
	missing := func(in *Instance) {
		if in.ID != "" && in.State != None && in.State != Exited && !slices.ContainsFunc(seen.Instances,
			func(s Instance) bool { return s.ID == in.ID }) {
			out.Instances = append(out.Instances, *in)
		}
	}
	for i := range m.containers {
		missing(&m.containers[i].Instance)
	}
	for i := range m.strays {
		missing(&m.strays[i].Instance)
	}
	return out
}

// seeMissing ends what a whole observation does not show.
func (m *StateMachine) seeMissing(seen Observation) {
	shown := make(map[string]bool, len(seen.Sandboxes)+len(seen.Instances))
	for _, s := range seen.Sandboxes {
		shown[s.ID] = true
	}
	for _, in := range seen.Instances {
		shown[in.ID] = true
	}
	for i := range m.sandboxes {
		if b := &m.sandboxes[i]; !shown[b.ID] {
			b.Ready, b.stopped = false, true
		}
	}
	for i := range m.containers {
		c := &m.containers[i]
		if shown[c.ID] {
			continue
		}
		c.doubts = 0
		if c.State == Running {
			m.lose(&c.Instance)
		}
	}
	m.strays = slices.DeleteFunc(m.strays, func(s stray) bool { return !shown[s.ID] })
	if len(m.strays) == 0 {
		m.strays = nil
	}
}

// lose ends an instance whose record is gone.
func (m *StateMachine) lose(in *Instance) {
	if in.State == Exited {
		return
	}
	in.State, in.FinishedAt = Exited, m.now
	in.ExitCode, in.Reason, in.Message = lostCode, lostReason, lostMessage
}

// byID returns the container or stray whose newest instance has the id.
func (m *StateMachine) byID(id string) *container {
	if id == "" {
		return nil
	}
	for i := range m.containers {
		if m.containers[i].ID == id {
			return &m.containers[i]
		}
	}
	if s := m.strayByID(id); s != nil {
		return &s.container
	}
	return nil
}

// lastWithID returns the container whose previous instance has the id.
func (m *StateMachine) lastWithID(id string) *container {
	for i := range m.containers {
		if c := &m.containers[i]; c.last != nil && c.last.ID == id {
			return c
		}
	}
	return nil
}
