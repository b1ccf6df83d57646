package podstate

// ContentChanged says that a ConfigMap or Secret to which the pod refers is there now, or has changed. What failed,
// and may have failed for want of it, is tried again at once.
type ContentChanged struct{}

func (ContentChanged) input() {}

// contentChanged ends the waits that the new content may end.
func (m *StateMachine) contentChanged() {
	m.renewed = true
	m.run.until = nil
	for i := range m.containers {
		switch c := &m.containers[i]; c.waiting {
		case "CreateContainerConfigError", "ErrImagePull", "ImagePullBackOff":
			c.start.until = nil
		}
	}
}

// unlessRenewed takes back the wait after a failure when the content has changed since what failed was begun: it may
// not have seen that.
func (m *StateMachine) unlessRenewed(r *retry) {
	if m.renewed {
		r.until = nil
	}
}
