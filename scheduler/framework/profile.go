package framework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"strings"
	"time"
)

// Enabled is a plugin with the weight of its scores; 0 counts as 1.
type Enabled struct {
	Plugin Plugin
	Weight int64
	// Points are where the plugin takes part; 0 means at all the extension points that it implements. A plugin may be
	// enabled several times, at different points: its place among the others can differ from point to point.
	Points Points
}

// Profile is a set of plugins, in order, under a scheduler name.
type Profile struct {
	name string

	sort        QueueSort
	preEnqueue  []PreEnqueue
	preFilters  []PreFilter
	filters     []Filter
	postFilters []PostFilter
	preScores   []PreScore
	scores      []weighted
	reserves    []Reserve
	permits     []Permit
	preBinds    []PreBind
	binds       []Bind
	postBinds   []PostBind
	enqueue     map[string]Enqueue
	// foreign says that plugins of other programs take part, which may keep what they see.
	foreign bool
	// podBlind are the filters, as bits, that no change of pods can make accept a node; allFilters are all.
	podBlind, allFilters uint64
	search               searchConfig
}

// maxFilters bounds the Filter plugins of a profile: sets of them are bits.
const maxFilters = 64

type weighted struct {
	Score
	weight int64
}

// NewProfile sorts plugins into their extension points.
func NewProfile(name string, percentageOfNodesToScore int, plugins ...Enabled) (*Profile, error) {
	if percentageOfNodesToScore < 0 || percentageOfNodesToScore > 100 {
		return nil, fmt.Errorf("profile %s: percentageOfNodesToScore %d is not within 0..100", name,
			percentageOfNodesToScore)
	}
	p := &Profile{name: name, enqueue: map[string]Enqueue{}, search: searchConfig{percentage: percentageOfNodesToScore}}
	at := map[string]Points{}
	for _, e := range plugins {
		points := e.Points
		if points == 0 {
			points = Implemented(e.Plugin)
		}
		n := e.Plugin.Name()
		if at[n]&points != 0 {
			return nil, fmt.Errorf("profile %s: plugin %s is enabled twice", name, n)
		}
		at[n] |= points
		p.foreign = p.foreign || isForeign(e.Plugin)
		if err := p.add(e, points); err != nil {
			return nil, fmt.Errorf("profile %s: %w", name, err)
		}
	}
	var errs []error
	if p.sort == nil {
		errs = append(errs, fmt.Errorf("profile %s: no QueueSort plugin is enabled", name))
	}
	if len(p.filters) > maxFilters {
		errs = append(errs, fmt.Errorf("profile %s: %d Filter plugins, at most %d can be", name, len(p.filters), maxFilters))
	}
	if len(p.binds) == 0 {
		errs = append(errs, fmt.Errorf("profile %s: no Bind plugin is enabled", name))
	}
	checked := map[string]bool{}
	for _, e := range plugins {
		if n := e.Plugin.Name(); !checked[n] {
			checked[n] = true
			errs = append(errs, wholePairs(name, e.Plugin, at[n])...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, f := range p.filters {
		p.allFilters |= 1 << i
		if q, ok := f.(Enqueue); ok && q.Events()&(PodAssigned|PodGone|PodShrunk) == 0 {
			p.podBlind |= p.filterBit(f.Name())
		}
	}
	return p, nil
}

// isForeign says whether a plugin is another program's. Those of this module keep no node beyond the call that it was
// given to, so that the memory of nodes can be used again.
func isForeign(p Plugin) bool {
	t := reflect.TypeOf(p)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return !strings.HasPrefix(t.PkgPath(), ownPlugins)
}

// ownPlugins is the folder of this module's plugins.
var ownPlugins = path.Dir(reflect.TypeFor[Profile]().PkgPath()) + "/plugins/"

func (p *Profile) add(e Enabled, points Points) error {
	if missing := points &^ Implemented(e.Plugin); missing != 0 {
		return fmt.Errorf("plugin %s does not implement %s", e.Plugin.Name(), missing)
	}
	if s, ok := e.Plugin.(QueueSort); ok && points&AtQueueSort != 0 {
		if p.sort != nil {
			return fmt.Errorf("%s and %s both sort the queue", p.sort.Name(), s.Name())
		}
		p.sort = s
	}
	appendAt(&p.preEnqueue, e.Plugin, points&AtPreEnqueue)
	appendAt(&p.preFilters, e.Plugin, points&AtPreFilter)
	appendAt(&p.filters, e.Plugin, points&AtFilter)
	appendAt(&p.postFilters, e.Plugin, points&AtPostFilter)
	appendAt(&p.preScores, e.Plugin, points&AtPreScore)
	appendAt(&p.reserves, e.Plugin, points&AtReserve)
	appendAt(&p.permits, e.Plugin, points&AtPermit)
	appendAt(&p.preBinds, e.Plugin, points&AtPreBind)
	appendAt(&p.binds, e.Plugin, points&AtBind)
	appendAt(&p.postBinds, e.Plugin, points&AtPostBind)
	if s, ok := e.Plugin.(Score); ok && points&AtScore != 0 {
		p.scores = append(p.scores, weighted{s, max(e.Weight, 1)})
	}
	if q, ok := e.Plugin.(Enqueue); ok {
		p.enqueue[q.Name()] = q
	}
	return nil
}

// appendAt adds a plugin to the list of a point where it takes part.
func appendAt[T Plugin](list *[]T, p Plugin, at Points) {
	if t, ok := p.(T); ok && at != 0 {
		*list = append(*list, t)
	}
}

// Name returns the scheduler name that pods choose the profile by.
func (p *Profile) Name() string { return p.name }

// Less orders the queue.
func (p *Profile) Less(a, b *QueuedPod) bool { return p.sort.Less(a, b) }

// PreEnqueue asks whether the pod may enter the queue.
func (p *Profile) PreEnqueue(pod *PodInfo) *Status {
	for _, pl := range p.preEnqueue {
		if s := guarded(func() *Status { return pl.PreEnqueue(pod) }); !s.IsSuccess() {
			return s
		}
	}
	return nil
}

// Interest returns the kinds of changes that the named plugins want to look at. Without plugins, a pod was refused
// because there was no node at all.
func (p *Profile) Interest(plugins []string) Event {
	if len(plugins) == 0 {
		return NodeAdded
	}
	var all Event
	for _, name := range plugins {
		e, ok := p.enqueue[name]
		if !ok {
			return AnyEvent
		}
		all |= e.Events()
	}
	return all
}

// Helps says whether a change could make any of the named plugins accept the pod. It says yes when one panics.
func (p *Profile) Helps(plugins []string, pod *PodInfo, change *Change) (helps bool) {
	defer func() {
		if recover() != nil {
			helps = true // the next decision will tell
		}
	}()
	if len(plugins) == 0 {
		return change.Event == NodeAdded
	}
	for _, name := range plugins {
		e, ok := p.enqueue[name]
		if !ok || e.Events()&change.Event != 0 && e.Helps(pod, change) {
			return true
		}
	}
	return false
}

// Decision is the outcome of Schedule.
type Decision struct {
	// Node is where the pod should run; empty when none fits.
	Node string
	// Evaluated and Feasible are how many nodes were looked at and how many of them fit.
	Evaluated, Feasible int
	// Diagnosis says why no node fits; nil when one does.
	Diagnosis *Diagnosis
	// Nomination is what a PostFilter plugin makes of a pod that fits nowhere; nil when none has a say.
	Nomination *Nomination
	// Err is a failure that says nothing about the pod.
	Err error
}

// Searcher remembers where the last search over the nodes stopped, so that the next goes on from there, and holds the
// source of random choices. One belongs to each decision loop.
type Searcher struct {
	next int
	rng  *rand.Rand
	// Scratch space of the decision loop.
	feasible []*NodeInfo
	curable  []*NodeInfo
	scores   []int64
	totals   []int64
}

// NewSearcher returns a searcher whose choices repeat with the seed.
func NewSearcher(seed uint64) *Searcher {
	return &Searcher{rng: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // no secret depends on it
}

// Reserve runs the Reserve plugins; when one refuses, those before it are undone.
func (p *Profile) Reserve(state *CycleState, pod *PodInfo, node string) *Status {
	for i, pl := range p.reserves {
		if s := guarded(func() *Status { return pl.Reserve(state, pod, node) }); !s.IsSuccess() {
			unreserve(p.reserves[:i+1], state, pod, node)
			return s
		}
	}
	return nil
}

// Unreserve undoes Reserve.
func (p *Profile) Unreserve(state *CycleState, pod *PodInfo, node string) {
	unreserve(p.reserves, state, pod, node)
}

// unreserve goes on after one that panics: nobody else would undo what the others hold.
func unreserve(list []Reserve, state *CycleState, pod *PodInfo, node string) {
	for i := len(list) - 1; i >= 0; i-- {
		_ = guarded(func() *Status {
			list[i].Unreserve(state, pod, node)
			return nil
		})
	}
}

// Permit runs the Permit plugins. With Wait, state.Waiting says what becomes of the pod.
func (p *Profile) Permit(state *CycleState, pod *PodInfo, node string) *Status {
	var wait *Status
	for _, pl := range p.permits {
		var timeout time.Duration
		s := guarded(func() (s *Status) {
			s, timeout = pl.Permit(state, pod, node)
			return s
		})
		switch {
		case s.Code() == Wait:
			wait = s
			state.Waiting().hold(pl.Name(), timeout)
		case !s.IsSuccess():
			return s
		}
	}
	return wait
}

// PreFlight says whether a PreBind plugin has something to do, which may take long. It ends the calls on the decision
// loop.
func (p *Profile) PreFlight(state *CycleState, pod *PodInfo, node string) (busy bool, failed *Status) {
	for i, pl := range p.preBinds {
		f, ok := pl.(PreFlight)
		if !ok {
			busy = true
			continue
		}
		switch s := guarded(func() *Status { return f.PreFlight(state, pod, node) }); s.Code() {
		case Success:
			busy = true
		case Skip:
			state.idle |= 1 << i
		default:
			return false, s
		}
	}
	state.over = true
	return busy, nil
}

// PreBind runs the PreBind plugins, but for those that PreFlight found to have nothing to do.
func (p *Profile) PreBind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status {
	for i, pl := range p.preBinds {
		if state.idle&(1<<i) != 0 {
			continue
		}
		if s := guarded(func() *Status { return pl.PreBind(ctx, state, pod, node) }); !s.IsSuccess() {
			return s
		}
	}
	return nil
}

// Bind runs Bind and PostBind.
func (p *Profile) Bind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status {
	for _, pl := range p.binds {
		s := guarded(func() *Status { return pl.Bind(ctx, state, pod, node) })
		if s.Code() == Skip {
			continue
		}
		if s.IsSuccess() {
			for _, after := range p.postBinds {
				_ = guarded(func() *Status { // The pod is bound, whatever becomes of this.
					after.PostBind(ctx, state, pod, node)
					return nil
				})
			}
		}
		return s
	}
	return NewStatus(Error, "", "no Bind plugin wanted the pod")
}
