package host

import (
	"context"
	"time"
)

// StopMargin is how much longer than its grace a stop, or a removal, may take until it returns, with an error if what
// it was to end cannot be confirmed dead. In its first half a shim that does not answer may come back; in its second
// half the runtime ends the sandbox itself.
const StopMargin = 10 * time.Second

// bounds are the ends of this package's waits. Tests shorten them.
type bounds struct {
	// settle is how long New waits for the shims of an earlier life, all of them together.
	settle time.Duration
	// lock is how long New waits for the lock of its directory, and a removal for a cgroup that is busy.
	lock time.Duration
	// hello is how long a shim may take to say who it is.
	hello time.Duration
	// send is how long a shim may take to read what was sent to it before its connection is given up.
	send time.Duration
	// call bounds a call whose caller has set no deadline.
	call time.Duration
	// margin is StopMargin.
	margin time.Duration
	// wake is the time between looks for shims that somebody has stopped.
	wake time.Duration
	// close is how long Close waits for work that hangs in the kernel.
	close time.Duration
	// profile is how long the default AppArmor profile may take to be loaded.
	profile time.Duration
	// retry is the longest pause between attempts to reach a shim, or to kill what cannot be killed yet.
	retry time.Duration
}

func (b bounds) orDefaults() bounds {
	for _, d := range []struct {
		set      *time.Duration
		standard time.Duration
	}{
		{&b.settle, 5 * time.Second},
		{&b.lock, 2 * time.Second},
		{&b.hello, 2 * time.Second},
		{&b.send, 2 * time.Second},
		{&b.call, 2 * time.Minute},
		{&b.margin, StopMargin},
		{&b.wake, 3 * time.Second},
		{&b.close, 5 * time.Second},
		{&b.profile, 10 * time.Second},
		{&b.retry, time.Second},
	} {
		if *d.set == 0 {
			*d.set = d.standard
		}
	}
	return b
}

// bounded gives a call an end if its caller has not.
func (r *Runtime) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, r.bounds.call)
}

// start runs f beside the caller, for Close to wait for, unless the runtime is closing.
func (r *Runtime) start(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startLocked(f)
}

func (r *Runtime) startLocked(f func()) {
	if r.closing.Err() == nil {
		r.work.Go(f)
	}
}

// nap waits for a pause that doubles each time, up to bounds.retry. It returns false when the runtime is closing.
func (r *Runtime) nap(pause *time.Duration) bool {
	*pause = min(max(2**pause, time.Millisecond), r.bounds.retry)
	t := time.NewTimer(*pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.closing.Done():
		return false
	}
}
