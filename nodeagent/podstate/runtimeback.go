package podstate

// RuntimeBack says that the runtime answers again after it did not for a while. What it failed to do meanwhile is
// asked of it again at once; nobody waits for back-offs that grew while it was away. spec: NODE-2
type RuntimeBack struct{}

func (RuntimeBack) input() {}

// runtimeBack ends the waits for a runtime that does not answer, and looks at what it has now. Back-offs of containers
// that crash are not among them.
func (m *StateMachine) runtimeBack() {
	for _, r := range []*retry{&m.run, &m.stopBox, &m.observe, &m.bury, &m.remove} {
		r.again()
	}
	for i := range m.containers {
		c := &m.containers[i]
		c.stop.again()
		if pulled(c.waiting) || c.waiting == "ImageInspectError" || c.waiting == "CreateContainerError" ||
			c.waiting == "RunContainerError" {
			c.start.again()
		}
	}
	for i := range m.strays {
		m.strays[i].stop.again()
	}
	if m.rz != nil {
		m.rz.act.again()
	}
	m.observeAgain = true
}

// again lets an action that has failed be asked for now. Should it fail once more, its back-off goes on growing.
func (r *retry) again() {
	if r.failures > 0 {
		r.until = nil
	}
}
