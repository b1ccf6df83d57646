// Package grace says how long a pod has between being told to stop and being killed, in whole seconds (DEL-1). The
// server counts deletions by it, and agents every other stop.
//
// It guarantees that no period is negative or beyond what a time.Duration can hold. It differs from Kubernetes in one
// point: a 0 in the spec of a pod counts as 1, since nobody but who deletes a pod can ask for no period at all
// (DEL-14). It knows nothing of how a period that has begun goes on.
package grace

import "time"

// Default is the period of a pod whose spec has none. Defaulting puts it there, so that this matters for few.
const Default = 30

// most is 100 years.
const most = 100 * 365 * 24 * 60 * 60

// Asked returns a period that is asked for in range; a negative one counts as 1.
func Asked(seconds int64) int64 {
	if seconds < 0 {
		return 1
	}
	return min(seconds, most)
}

// Own returns the period of a pod with this terminationGracePeriodSeconds, nil for none.
func Own(spec *int64) int64 {
	if spec == nil {
		return Default
	}
	return max(Asked(*spec), 1)
}

// Duration returns a number of seconds that Asked or Own has returned.
func Duration(seconds int64) time.Duration { return time.Duration(seconds) * time.Second }
