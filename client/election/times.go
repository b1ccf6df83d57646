package election

import (
	"cmp"
	"fmt"
	"time"
)

// Times are those of an election. Zero values stand for the defaults, which are those of Kubernetes.
type Times struct {
	// LeaseDuration is how long others wait for the holder to renew the Lease before they take it; 15 s by default.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader goes on that cannot renew the Lease; 10 s by default.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two attempts to get the Lease, or to renew it; 2 s by default.
	RetryPeriod time.Duration
}

// jitter is by how much of RetryPeriod candidates wait longer at most, so that they do not come together.
const jitter = 1.2

// Complete returns t with its defaults, or says what is wrong with it.
func (t Times) Complete() (Times, error) {
	t.LeaseDuration = cmp.Or(t.LeaseDuration, 15*time.Second)
	t.RenewDeadline = cmp.Or(t.RenewDeadline, 10*time.Second)
	t.RetryPeriod = cmp.Or(t.RetryPeriod, 2*time.Second)
	switch {
	case t.RetryPeriod < 0 || t.LeaseDuration < time.Second:
		return t, fmt.Errorf("the lease of a leader lasts %s and is renewed every %s; it must last a second at least, and "+
			"be renewed after a time that is positive", t.LeaseDuration, t.RetryPeriod)
	case t.LeaseDuration <= t.RenewDeadline:
		return t, fmt.Errorf("the lease of a leader lasts %s, which must be more than the %s for which it may fail to "+
			"renew it", t.LeaseDuration, t.RenewDeadline)
	case t.RenewDeadline <= time.Duration(jitter*float64(t.RetryPeriod)):
		return t, fmt.Errorf("a leader may fail to renew its lease for %s, which must be more than %v times the %s between "+
			"two attempts", t.RenewDeadline, jitter, t.RetryPeriod)
	default:
		return t, nil
	}
}
