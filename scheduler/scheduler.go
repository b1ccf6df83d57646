package scheduler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
	"monoplane.dev/scheduler/internal/state"
)

// Scheduler assigns pods to nodes. Run starts it.
type Scheduler struct {
	cfg      Config
	profiles profiles
	metrics  *metrics

	pods  *cache.Cache[*corev1.Pod]
	nodes *cache.Cache[*corev1.Node]
	// namespaces matter by their labels.
	namespaces *cache.Cache[*corev1.Namespace]
	// budgets matter to preemption.
	budgets *cache.Cache[*policyv1.PodDisruptionBudget]
	storage storageCaches
	// groups are what pods belong to.
	groups []follower

	queue    *queue.Queue
	state    *state.State
	reporter *reporter
	// preemptions are the deletions of victims under way.
	preemptions sync.WaitGroup
	// waiting are the pods that Permit plugins delay, by uid.
	waiting sync.Map
	// news is for pods in PreBind.
	news      *framework.News
	questions questions

	ready atomic.Bool
}

// New returns a scheduler.
func New(cfg Config) (*Scheduler, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	chosen, err := newProfiles(cfg)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg:      cfg,
		profiles: chosen,
		pods:     cache.New(cache.Config[*corev1.Pod]{Source: cache.Watch(cfg.Client.Pods.Watch), Logger: cfg.Logger}),
		nodes:    cache.New(cache.Config[*corev1.Node]{Source: cache.Watch(cfg.Client.Nodes.Watch), Logger: cfg.Logger}),
		namespaces: cache.New(cache.Config[*corev1.Namespace]{
			Source: cache.Watch(cfg.Client.Namespaces.Watch), Logger: cfg.Logger,
		}),
		budgets: cache.New(cache.Config[*policyv1.PodDisruptionBudget]{
			Source: cache.Watch(cfg.Client.PodDisruptionBudgets.Watch), Logger: cfg.Logger,
		}),
		state: state.New(), news: framework.NewNews(), questions: newQuestions(),
	}
	s.queue = queue.New(queue.Config{
		Less: cfg.Profiles[0].Less, PreEnqueue: s.profiles.preEnqueue, Interest: s.profiles.interest,
		Helps:          s.profiles.helps,
		InitialBackoff: cfg.InitialBackoff, MaxBackoff: cfg.MaxBackoff, MaxWait: cfg.MaxWait,
	})
	s.reporter = newReporter(cfg.Client.Pods, cfg.Logger)
	if s.metrics, err = newMetrics(s); err != nil {
		return nil, err
	}
	s.storage = s.newStorageCaches()
	s.groups = s.newGroupCaches()
	s.pods.AddHandler(cache.Handler[*corev1.Pod]{OnAdd: s.podAdded, OnUpdate: s.podUpdated, OnDelete: s.podDeleted})
	s.nodes.AddHandler(cache.Handler[*corev1.Node]{OnAdd: s.nodeAdded, OnUpdate: s.nodeUpdated, OnDelete: s.nodeDeleted})
	s.namespaces.AddHandler(cache.Handler[*corev1.Namespace]{
		OnAdd: s.namespaceAdded, OnUpdate: s.namespaceUpdated, OnDelete: s.namespaceDeleted,
	})
	s.budgets.AddHandler(cache.Handler[*policyv1.PodDisruptionBudget]{
		OnAdd: s.setBudget, OnUpdate: func(_, b *policyv1.PodDisruptionBudget) { s.setBudget(b) },
		OnDelete: s.budgetDeleted,
	})
	return s, nil
}

// Ready returns nil once the scheduler has read the cluster and decides.
func (s *Scheduler) Ready() error {
	if !s.ready.Load() {
		return errors.New("scheduler: reading the pods, nodes, namespaces, budgets and volumes")
	}
	return nil
}

// Run decides until ctx ends, then waits for bindings under way, and returns ctx's error. It must be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.pods.Run(ctx) })
	g.Go(func() error { return s.nodes.Run(ctx) })
	g.Go(func() error { return s.namespaces.Run(ctx) })
	g.Go(func() error { return s.budgets.Run(ctx) })
	g.Go(func() error { return s.storage.claims.Run(ctx) })
	g.Go(func() error { return s.storage.volumes.Run(ctx) })
	g.Go(func() error { return s.storage.classes.Run(ctx) })
	for _, c := range s.groups {
		g.Go(func() error { return c.Run(ctx) })
	}
	for _, p := range s.profiles {
		g.Go(func() error { return p.events.Run(ctx) })
	}
	g.Go(func() error { return s.reporter.run(ctx) })
	g.Go(func() error {
		err := errors.Join(s.storage.classes.WaitForSync(ctx), s.storage.volumes.WaitForSync(ctx),
			s.storage.claims.WaitForSync(ctx), s.budgets.WaitForSync(ctx),
			s.nodes.WaitForSync(ctx), s.namespaces.WaitForSync(ctx), s.pods.WaitForSync(ctx))
		for _, c := range s.groups {
			err = errors.Join(err, c.WaitForSync(ctx))
		}
		if err != nil {
			return err
		}
		s.ready.Store(true)
		g.Go(func() error { return s.serveQuestions(ctx) })
		return s.decide(ctx)
	})
	return g.Wait()
}

// decide is the decision loop.
func (s *Scheduler) decide(ctx context.Context) error {
	snapshot := framework.NewSnapshot()
	search := framework.NewSearcher(s.cfg.Seed)
	slots := make(chan struct{}, s.cfg.Binders)
	var bindings sync.WaitGroup
	defer bindings.Wait()
	defer s.preemptions.Wait()
	for {
		s.answerBetween(snapshot)
		try, next := s.queue.Pop()
		if try == nil {
			if err := s.sleep(ctx, next, snapshot); err != nil {
				return err
			}
			continue
		}
		s.state.Update(snapshot)
		began := time.Now()
		var cycle framework.CycleState
		d := s.profiles.of(try.Pod).Schedule(&cycle, try.PodInfo, snapshot, search)
		s.metrics.decided(d, time.Since(began))
		if d.Node == "" {
			s.refused(ctx, try, d)
			continue
		}
		cycle.Pick(snapshot.Node(d.Node).Node)
		ready, ok := s.reserve(try, &cycle, d.Node)
		if !ok {
			continue
		}
		if !ready {
			bindings.Go(func() {
				if !s.prepare(ctx, try, &cycle, d.Node) {
					return
				}
				select {
				case slots <- struct{}{}:
					defer func() { <-slots }()
					s.bind(ctx, try, &cycle, d.Node)
				case <-ctx.Done():
					s.abandon(try, &cycle, d.Node)
				}
			})
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			s.abandon(try, &cycle, d.Node)
			return ctx.Err()
		}
		bindings.Go(func() {
			defer func() { <-slots }()
			s.bind(ctx, try, &cycle, d.Node)
		})
	}
}

// sleep waits for something new in the queue, or for a question, which it answers; next is when there will be
// something new at the latest, 0 for never.
func (s *Scheduler) sleep(ctx context.Context, next time.Duration, snapshot *framework.Snapshot) error {
	var alarm <-chan time.Time
	if next > 0 {
		t := time.NewTimer(next)
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-s.queue.Wake():
		return nil
	case q := <-s.questions.waiting:
		s.tell(q, snapshot)
		return nil
	case <-alarm:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refused ends a try that found no node.
func (s *Scheduler) refused(ctx context.Context, try *queue.Try, d framework.Decision) {
	if d.Err != nil {
		s.failed(try, "cannot decide", d.Err)
		return
	}
	s.metrics.attempt(try, isUnschedulable)
	message := d.Diagnosis.Message()
	if d.Nomination != nil {
		s.nominate(ctx, try, d.Nomination)
	}
	s.reporter.unschedulable(try.PodInfo, message)
	s.profiles.of(try.Pod).events.Event(try.Pod, record.Warning, "FailedScheduling", "Scheduling", message)
	try.Unschedulable(d.Diagnosis.Plugins())
}

// reserve counts the pod on its node and runs Reserve and Permit. With ok false the try has ended; ready says that the
// binding need not wait for anything.
func (s *Scheduler) reserve(try *queue.Try, cycle *framework.CycleState, node string) (ready, ok bool) {
	if !s.state.Assume(try.PodInfo, node) {
		try.Done() // the watch has seen it bound meanwhile
		return false, false
	}
	profile := s.profiles.of(try.Pod)
	status := profile.Reserve(cycle, try.PodInfo, node)
	if plan := cycle.VolumePlan(); plan != nil {
		s.state.AssumeVolumes(try.UID, plan) // forgotten with the pod
	}
	if status.IsSuccess() {
		busy := false
		status = profile.Permit(cycle, try.PodInfo, node)
		waits := status.Code() == framework.Wait
		if waits || status.IsSuccess() {
			busy, status = profile.PreFlight(cycle, try.PodInfo, node)
		}
		if status.IsSuccess() {
			try.Landed()
			if kept := s.state.Nominated(try.UID); kept != "" && kept != node {
				s.giveBack(try.PodInfo)
			}
			s.reporter.forget(try.UID) // what it was refused for before is past, and the report would disturb the binding
			if waits {
				s.waiting.Store(try.UID, cycle.Waiting())
				if try.Gone() {
					s.refuseWaiting(try.UID, podIsGone)
				}
			}
			return !waits && !busy, true
		}
		profile.Unreserve(cycle, try.PodInfo, node)
	}
	s.state.Forget(try.PodInfo)
	if status.IsRejected() {
		s.rejected(try, status)
		try.Unschedulable([]string{status.Plugin()})
		return false, false
	}
	s.failed(try, "cannot reserve", status.Err())
	return false, false
}

// rejected says why a pod does not get the node that was picked for it.
func (s *Scheduler) rejected(try *queue.Try, status *framework.Status) {
	s.metrics.attempt(try, isUnschedulable)
	s.reporter.unschedulable(try.PodInfo, status.Message())
	s.profiles.of(try.Pod).events.Event(try.Pod, record.Warning, "FailedScheduling", "Scheduling", status.Message())
}

// failed ends a try with a failure that says nothing about the pod.
func (s *Scheduler) failed(try *queue.Try, what string, err error) {
	attrs := []any{"pod", try.Key.String(), "uid", try.UID, "error", err}
	var panicked *framework.PanicError
	if errors.As(err, &panicked) {
		attrs = append(attrs, "stack", string(panicked.Stack))
	}
	s.cfg.Logger.Error(what, attrs...)
	s.metrics.attempt(try, hasFailed)
	s.profiles.of(try.Pod).events.Event(try.Pod, record.Warning, "FailedScheduling", "Scheduling", err.Error())
	try.Retry()
}

// abandon takes back what reserve did.
func (s *Scheduler) abandon(try *queue.Try, cycle *framework.CycleState, node string) {
	s.profiles.of(try.Pod).Unreserve(cycle, try.PodInfo, node)
	s.state.Forget(try.PodInfo)
	try.Retry()
}
