package podstate

import "time"

// anchor ties a time that the runtime or the API stated, by the machine's clock as it was, to the time that runs in
// this process: the clock may be set afterwards without moving what is reckoned from it. A time in the future, from
// before the clock was set back, becomes now.
func (m *StateMachine) anchor(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return m.now.Add(-max(0, m.now.Sub(t)))
}
