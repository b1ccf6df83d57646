package charge

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"
	"monoplane.dev/rules/quota"

	corev1 "monoplane.dev/api/core/v1"
)

// Ledger charges the writes of one server.
type Ledger struct {
	store *store.Store
	clock clock.PassiveClock

	mu    sync.Mutex
	sheet map[string]*sheet // by namespace; only of namespaces with quotas
}

// NewLedger returns a ledger that has charged nothing.
func NewLedger(s *store.Store, c clock.PassiveClock) *Ledger {
	return &Ledger{store: s, clock: c, sheet: map[string]*sheet{}}
}

// sheet is what a namespace with quotas has been charged.
type sheet struct {
	// gate is held by whoever judges.
	gate chan struct{}

	mu sync.Mutex
	// turn is the guard of what is charged; its revision is 0 while the turn is not held.
	turn store.Guard
	// doubted is true when writes have failed in a way that may mean that the turn has been taken.
	doubted bool
	// quotas are those that have been added up, and sums, in the same order, what is used of each; nil until then.
	quotas []*corev1.ResourceQuota
	sums   []quota.Usage
	// lost counts how often the turn was lost since a write got through.
	lost int
	// flying are the charges that are not settled; idle is closed once there are none, nil while nobody waits.
	flying int
	idle   chan struct{}
}

func (l *Ledger) of(namespace string) *sheet {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sheet[namespace]
	if s == nil {
		s = &sheet{gate: make(chan struct{}, 1)}
		l.sheet[namespace] = s
	}
	return s
}

// Forget gives back what is kept about a namespace that has no quotas any more. Charges that are not settled then, or
// that are asked for at the same moment, are as safe as those of another server: the next sheet takes its own turn.
func (l *Ledger) Forget(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sheet, namespace)
}

// Charge sets aside what a write takes of the quotas of its namespace, which it asks for again whenever it adds up.
func (l *Ledger) Charge(
	ctx context.Context, w registry.Write, quotas func() []*corev1.ResourceQuota,
) (registry.Charge, error) {
	if !concerned(w) {
		return registry.Charge{}, nil
	}
	d, err := demandOf(w, quotas(), l.clock.Now())
	if err != nil || d.nothing() {
		return registry.Charge{}, err
	}
	namespace := w.Next.GetMetadata().GetNamespace()
	if w.DryRun {
		sums, err := l.count(ctx, namespace, d.quotas)
		if err != nil {
			return registry.Charge{}, err
		}
		return registry.Charge{}, d.judge(w, sums)
	}
	s := l.of(namespace)
	select {
	case s.gate <- struct{}{}:
	case <-ctx.Done():
		return registry.Charge{}, ctx.Err()
	}
	defer func() {
		<-s.gate
		if len(quotas()) == 0 { // they went after they were looked at, and Forget may have been before this
			l.Forget(namespace)
		}
	}()
	if err := l.hold(ctx, namespace, s); err != nil {
		return registry.Charge{}, err
	}
	now := quotas()
	if !same(now, d.quotas) { // they have changed meanwhile
		if d, err = demandOf(w, now, l.clock.Now()); err != nil || d.nothing() {
			return registry.Charge{}, err
		}
	}
	if c, err := s.charge(w, d); err == nil {
		return c, nil
	}
	if err := s.land(ctx); err != nil {
		return registry.Charge{}, err
	}
	sums, err := l.count(ctx, namespace, d.quotas)
	if err != nil {
		return registry.Charge{}, err
	}
	s.mu.Lock()
	s.quotas, s.sums = d.quotas, sums
	s.mu.Unlock()
	return s.charge(w, d)
}

// backOff is how long, on average, a server first leaves the turn to the one that took it, and longest at most.
const (
	backOff = 4 * time.Millisecond
	longest = 200 * time.Millisecond
)

// hold sees to it that this server has the turn. The caller holds the gate.
func (l *Ledger) hold(ctx context.Context, namespace string, s *sheet) error {
	s.mu.Lock()
	turn, doubted, lost := s.turn, s.doubted, s.lost
	s.doubted = false
	s.mu.Unlock()
	name := "quotas/" + namespace
	if turn.Revision > 0 && doubted {
		current, err := l.store.Turn(ctx, name)
		if err != nil {
			return err
		}
		if current.Revision != turn.Revision {
			turn.Revision, lost = 0, lost+1
		}
	}
	if turn.Revision > 0 {
		return nil
	}
	if lost > 0 { // let who took it write something
		most := min(backOff<<min(lost, 10), longest)
		select {
		case <-time.After(rand.N(most)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	turn, err := l.store.TakeTurn(ctx, name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.turn, s.lost, s.sums = turn, lost, nil
	s.mu.Unlock()
	return nil
}

// count adds up what the objects of a namespace take of each of the quotas, as they are now.
func (l *Ledger) count(
	ctx context.Context, namespace string, quotas []*corev1.ResourceQuota,
) ([]quota.Usage, error) {
	if _, err := l.store.Revision(ctx); err != nil {
		return nil, err
	}
	now := l.clock.Now()
	sums := make([]quota.Usage, len(quotas))
	counted := map[*object.Kind]bool{}
	for i, q := range quotas {
		sums[i] = quota.None(q.GetSpec())
		for _, kind := range l.store.Kinds() {
			if quota.Counted(kind) && quota.LimitsKind(q.GetSpec(), kind) {
				counted[kind] = true
			}
		}
	}
	for kind := range counted {
		all, err := l.store.List(ctx, kind, store.ListOptions{Namespace: namespace, ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		for _, o := range all.Objects {
			usage := quota.Of(o, now)
			for i, q := range quotas {
				if quota.Counts(q.GetSpec(), o) {
					sums[i].Add(usage.Only(sums[i]))
				}
			}
		}
	}
	return sums, nil
}

// land waits until all that is charged is settled. The caller holds the gate, so that nothing more is charged.
func (s *sheet) land(ctx context.Context) error {
	s.mu.Lock()
	if s.flying == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errUnknown says that the sums are not those of the quotas.
var errUnknown = errors.New("what is used is not known")

// charge adds what is demanded to the sums, and returns what settles it. It fails when the sums have no room, or are
// not known.
func (s *sheet) charge(w registry.Write, d demand) (registry.Charge, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn, sums := s.turn, s.sums
	if sums == nil || !same(s.quotas, d.quotas) {
		return registry.Charge{}, errUnknown
	}
	if err := d.judge(w, sums); err != nil {
		return registry.Charge{}, err
	}
	for i, usage := range d.usage {
		sums[i].Add(usage)
	}
	s.flying++
	return registry.Charge{Guard: turn, Settle: func(err error) { s.settle(turn, sums, d, err) }}, nil
}

// settle ends a charge.
func (s *sheet) settle(turn store.Guard, sums []quota.Usage, d demand, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying--; s.flying == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	if err == nil {
		s.lost = 0
		return
	}
	var conflict *store.ConflictError
	switch isConflict := errors.As(err, &conflict); {
	case isConflict, errors.Is(err, registry.ErrNotStored):
		for i, usage := range d.usage {
			sums[i].Sub(usage)
		}
		// Which condition failed is not always told.
		s.doubted = s.doubted || !isConflict || conflict.Key == turn.Key
	case s.turn.Revision == turn.Revision:
		// It may be stored yet, unless the turn is taken once more.
		s.turn.Revision = 0
	}
}

// judge refuses a write that takes more than is left of one of the quotas.
func (d demand) judge(w registry.Write, sums []quota.Usage) error {
	for i, q := range d.quotas {
		hard := d.hard[i]
		asked := d.usage[i]
		if len(asked) == 0 {
			continue
		}
		after := make(quota.Usage, len(asked))
		after.Add(asked)
		after.Add(sums[i].Only(asked))
		if names := after.Above(hard); len(names) > 0 {
			m := w.Next.GetMetadata()
			return apierrors.NewForbidden(w.Next.ObjectKind(), m.GetName(),
				"exceeded quota: %s, requested: %s, used: %s, limited: %s",
				q.GetMetadata().GetName(), asked.Named(names), sums[i].Named(names), hard.Named(names))
		}
	}
	return nil
}
