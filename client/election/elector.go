package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

// Config describes a candidate.
type Config struct {
	// Leases is where the Lease is.
	Leases coordinationv1rpc.LeasesClient
	// Namespace and Name are the Lease's.
	Namespace, Name string
	// Identity is the candidate's; no other process may have it.
	Identity string
	// Times are the same for all candidates.
	Times Times
	// Recorder tells who became the leader, as an event of the Lease; nil for none. The caller runs it.
	Recorder *record.Recorder
	// Logger is told when a term begins and ends; nil discards.
	Logger *slog.Logger
}

// Elector is a candidate. Use New.
type Elector struct {
	cfg Config

	// What follows belongs to Run, but for what mu guards.

	// seen is the Lease as it was last, and since when by the own clock.
	seen  *coordinationv1.Lease
	since time.Time

	mu sync.Mutex
	// holder is who holds the Lease, as far as is known: empty for nobody.
	holder string
}

// New returns a candidate.
func New(cfg Config) (*Elector, error) {
	var err error
	if cfg.Times, err = cfg.Times.Complete(); err != nil {
		return nil, err
	}
	if cfg.Leases == nil || cfg.Namespace == "" || cfg.Name == "" || cfg.Identity == "" {
		return nil, errors.New("election: Leases, Namespace, Name or Identity is missing")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Elector{cfg: cfg}, nil
}

// Holder returns who holds the Lease as far as is known, empty while that is nobody, or has not been found out.
func (e *Elector) Holder() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder
}

// Run stands for election until ctx ends, and calls lead for each term. It returns ctx's error, or what lead returns
// without having been asked to end. The context of a term ends with it; the next election is after lead has returned.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, t *Term) error) error {
	for {
		t, err := e.win(ctx)
		if err != nil {
			return err
		}
		e.cfg.Logger.Info("leads", "lease", e.cfg.Name, "identity", e.cfg.Identity)
		e.cfg.Recorder.Event(e.seen, record.Normal, "LeaderElection", "Leading", e.cfg.Identity+" became leader")
		err = e.serve(ctx, t, lead)
		e.cfg.Logger.Info("no longer leads", "lease", e.cfg.Name, "identity", e.cfg.Identity)
		if err != nil {
			return err
		}
	}
}

// win waits until the Lease is this candidate's, or ctx ends.
func (e *Elector) win(ctx context.Context) (*Term, error) {
	for {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, e.cfg.Times.RenewDeadline)
		held, err := e.try(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			e.cfg.Logger.Warn("the lease of the leader cannot be had", "lease", e.cfg.Name, "error", err)
		case held:
			return &Term{identity: e.cfg.Identity, until: began.Add(e.cfg.Times.RenewDeadline)}, nil
		}
		more := time.Duration(rand.Float64() * jitter * float64(e.cfg.Times.RetryPeriod)) //nolint:gosec // no secret
		if !sleep(ctx, e.cfg.Times.RetryPeriod+more) {
			return nil, ctx.Err()
		}
	}
}

// serve leads for a term. The error is what Run returns; nil when the term is over and there may be another.
func (e *Elector) serve(ctx context.Context, t *Term, lead func(context.Context, *Term) error) error {
	leading, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- lead(leading, t) }()
	var err error
	if ended := e.keep(leading, t, done); ended != nil {
		err = *ended // by itself, or with ctx
	} else {
		if ctx.Err() == nil {
			t.end() // nothing more is written, whatever lead still does
		}
		cancel()
		err = <-done
		if ctx.Err() == nil {
			return nil
		}
	}
	if t.Err() == nil {
		e.release(context.WithoutCancel(ctx))
	}
	t.end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = errors.New("ended by itself")
	}
	return err
}

// keep renews the Lease until the term is over or ctx ends, and then returns nil; or until lead has ended, whose error
// it returns.
func (e *Elector) keep(ctx context.Context, t *Term, done <-chan error) (ended *error) {
	timer := time.NewTimer(e.cfg.Times.RetryPeriod)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return &err
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if t.left() <= 0 {
			return nil // the process stood still
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, t.left())
		held, err := e.try(limited)
		cancel()
		switch {
		case held:
			t.extend(began.Add(e.cfg.Times.RenewDeadline))
		case err == nil: // another has it
			return nil
		case ctx.Err() == nil:
			e.cfg.Logger.Warn("the lease of the leader cannot be renewed", "lease", e.cfg.Name, "error", err)
		}
		left := t.left()
		if left <= 0 {
			return nil
		}
		timer.Reset(min(left, e.cfg.Times.RetryPeriod))
	}
}

// try takes or renews the Lease, and reports whether this candidate holds it then. Without an error it is another's.
func (e *Elector) try(ctx context.Context) (bool, error) {
	if e.seen.GetSpec().GetHolderIdentity() == e.cfg.Identity {
		// Nobody else has written it, most likely. What has happened otherwise, is seen below.
		if held, err := e.write(ctx, e.seen); held || err != nil && !apierrors.Is(err, apierrors.NotFound) {
			return held, err
		}
	}
	live, err := e.cfg.Leases.Get(ctx, &metav1.GetRequest{Namespace: e.cfg.Namespace, Name: e.cfg.Name})
	if apierrors.Is(err, apierrors.NotFound) {
		made, err := e.cfg.Leases.Create(ctx, &coordinationv1rpc.CreateLeaseRequest{Object: e.taken(&coordinationv1.Lease{
			Metadata: &metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name},
		})})
		return e.wrote(made, err)
	}
	if err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	if live.GetMetadata().GetResourceVersion() != e.seen.GetMetadata().GetResourceVersion() {
		e.see(live)
	}
	holder := live.GetSpec().GetHolderIdentity()
	lasts := time.Duration(live.GetSpec().GetLeaseDurationSeconds()) * time.Second
	if holder != "" && holder != e.cfg.Identity && time.Since(e.since) < lasts {
		return false, nil
	}
	return e.write(ctx, live)
}

// write takes or renews the Lease that was seen, unless it has changed since.
func (e *Elector) write(ctx context.Context, seen *coordinationv1.Lease) (bool, error) {
	return e.wrote(e.cfg.Leases.Update(ctx, &coordinationv1rpc.UpdateLeaseRequest{
		Namespace: e.cfg.Namespace, Name: e.cfg.Name, Object: e.taken(seen),
	}))
}

// wrote looks at what came of a write. Who came too late has no error.
func (e *Elector) wrote(l *coordinationv1.Lease, err error) (bool, error) {
	switch {
	case err == nil:
		e.see(l)
		return true, nil
	case apierrors.Is(err, apierrors.Conflict) || apierrors.Is(err, apierrors.AlreadyExists):
		return false, nil
	default:
		return false, fmt.Errorf("write: %w", err)
	}
}

// see notes what the Lease is from now on.
func (e *Elector) see(l *coordinationv1.Lease) {
	e.seen, e.since = l, time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holder = l.GetSpec().GetHolderIdentity()
}

// taken returns a Lease as this candidate holds it.
func (e *Elector) taken(l *coordinationv1.Lease) *coordinationv1.Lease {
	next, now := object.Clone(l), value.MicroTime(time.Now())
	was := next.GetSpec()
	next.Spec = &coordinationv1.LeaseSpec{
		HolderIdentity:       proto.String(e.cfg.Identity),
		LeaseDurationSeconds: proto.Int32(int32(math.Ceil(e.cfg.Times.LeaseDuration.Seconds()))),
		AcquireTime:          was.GetAcquireTime(), RenewTime: now, LeaseTransitions: proto.Int32(was.GetLeaseTransitions()),
	}
	if was.GetHolderIdentity() != e.cfg.Identity {
		next.Spec.AcquireTime = now
		if was != nil {
			next.Spec.LeaseTransitions = proto.Int32(was.GetLeaseTransitions() + 1)
		}
	}
	return next
}

// releaseTime bounds how long the end of a leader waits for the Lease to be given back.
const releaseTime = 2 * time.Second

// release gives the Lease back, so that others need not wait.
func (e *Elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	give := func(l *coordinationv1.Lease) error {
		next := e.taken(l)
		next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds = proto.String(""), proto.Int32(1)
		_, err := e.cfg.Leases.Update(ctx, &coordinationv1rpc.UpdateLeaseRequest{
			Namespace: e.cfg.Namespace, Name: e.cfg.Name, Object: next,
		})
		return err
	}
	err := give(e.seen)
	if apierrors.Is(err, apierrors.Conflict) { // such as by a renewal whose answer came too late
		var live *coordinationv1.Lease
		live, err = e.cfg.Leases.Get(ctx, &metav1.GetRequest{Namespace: e.cfg.Namespace, Name: e.cfg.Name})
		if err == nil && live.GetSpec().GetHolderIdentity() == e.cfg.Identity {
			err = give(live)
		}
	}
	if err != nil {
		e.cfg.Logger.Debug("the lease of the leader is left to end by itself", "lease", e.cfg.Name, "error", err)
	}
}

// sleep waits, and reports whether ctx went on meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
