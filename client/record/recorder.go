// Package record writes events: short notes about what happened to an object, which `kubectl describe` shows.
//
// An event that repeats (same object, type, reason and note) becomes a series: one object whose count grows and which
// is written at most once in ten seconds. Events about one object are limited to a burst of 25 and one more each 30 s,
// so that a failing loop cannot flood the store. Events have the fields of events.k8s.io (a time in microseconds, a
// series) and, where those of Kubernetes have them too, the older ones of core/v1 (a source, first and last time, a
// count): what clients look for differs.
//
// Events are best effort: recording never blocks the caller, and what does not fit the queue, or cannot be written, is
// dropped and counted.
package record

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

// The types of events.
const (
	Normal  = "Normal"
	Warning = "Warning"
)

// Config describes a recorder.
type Config struct {
	// Events is where events are written.
	Events corev1rpc.EventsClient
	// Controller names the component, such as "default-scheduler"; Instance the one of several, such as a node's
	// name. Instance defaults to Controller.
	Controller, Instance string
	// NewForm leaves the fields of core/v1 out, as Kubernetes' scheduler does.
	NewForm bool
	// Logger is told about events that could not be written; nil discards.
	Logger *slog.Logger
}

// Recorder records events. A nil *Recorder records nothing.
type Recorder struct {
	*shared

	instance, host string
}

// shared is what the recorders of one queue have in common.
type shared struct {
	cfg Config
	// wake has a token when there may be something in queue.
	wake chan struct{}

	mu      sync.Mutex
	queue   []entry // Invariant: at most queueLength; a program has many recorders, most with nothing to say
	dropped uint64

	// What follows belongs to Run.
	series *seriesTable
	last   int64 // the time that the newest event's name was made of
}

// entry is one call of Event.
type entry struct {
	instance  string
	host      string
	regarding *corev1.ObjectReference
	kind      string
	reason    string
	action    string
	note      string
	at        time.Time
}

// The bounds of a recorder.
const (
	queueLength  = 1000
	maxNote      = 1024 // the API's limit
	writeTimeout = 10 * time.Second
	maxNames     = 10 // that are tried besides the first
)

// New returns a recorder. Nothing is written before Run.
func New(cfg Config) *Recorder {
	if cfg.Instance == "" {
		cfg.Instance = cfg.Controller
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &shared{cfg: cfg, wake: make(chan struct{}, 1), series: newSeriesTable()}
	return &Recorder{shared: s, instance: cfg.Instance}
}

// On returns a recorder for another node. It shares everything else with r, whose Run writes its events.
func (r *Recorder) On(node string) *Recorder {
	if r == nil {
		return nil
	}
	return &Recorder{shared: r.shared, instance: node, host: node}
}

// Event notes that something happened to an object. kind is Normal or Warning; reason is a CamelCase word; action says
// what the component was doing, such as "Scheduling".
func (r *Recorder) Event(o object.Object, kind, reason, action, note string) {
	r.EventIn(o, "", kind, reason, action, note)
}

// EventIn is Event for a part of an object, such as "spec.containers{main}"; empty for all of it.
func (r *Recorder) EventIn(o object.Object, fieldPath, kind, reason, action, note string) {
	if r == nil {
		return
	}
	m, k := o.GetMetadata(), o.ObjectKind()
	r.EventFor(&corev1.ObjectReference{
		ApiVersion: k.APIVersion(), Kind: k.Kind, Namespace: m.GetNamespace(), Name: m.GetName(), Uid: m.GetUid(),
		ResourceVersion: m.GetResourceVersion(), FieldPath: fieldPath,
	}, kind, reason, action, note)
}

// EventFor is Event for an object that is only known by reference.
func (r *Recorder) EventFor(regarding *corev1.ObjectReference, kind, reason, action, note string) {
	if r == nil {
		return
	}
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	e := entry{instance: r.instance, host: r.host, regarding: regarding, kind: kind, reason: reason, action: action,
		note: note, at: time.Now()}
	r.mu.Lock()
	full := len(r.queue) >= queueLength
	if full {
		r.dropped++
	} else {
		r.queue = append(r.queue, e)
	}
	r.mu.Unlock()
	if !full {
		r.rouse()
	}
}

// rouse lets Run look at the queue.
func (r *Recorder) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next takes the oldest entry out of the queue.
func (r *Recorder) next() (entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return entry{}, false
	}
	e := r.queue[0]
	r.queue[0] = entry{}
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil
	}
	return e, true
}

// Dropped returns how many events were lost.
func (r *Recorder) Dropped() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

func (r *Recorder) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped++
}

// Run writes events until ctx ends, and what is queued at that moment.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.wake:
			if ctx.Err() != nil {
				continue // what is queued is for the time after ctx
			}
			if e, ok := r.next(); ok {
				r.handle(ctx, e)
				r.rouse() // there may be more
			}
		case now := <-tick.C:
			r.flush(ctx, now)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			for e, ok := r.next(); ok; e, ok = r.next() {
				r.handle(last, e)
			}
			return ctx.Err()
		}
	}
}

// handle writes a new event or counts a repeated one.
func (r *Recorder) handle(ctx context.Context, e entry) {
	s, limited := r.series.find(e)
	if limited {
		r.drop()
		return
	}
	if s.name == "" {
		r.create(ctx, s, e)
		return
	}
	s.count++
	s.seen = e.at
	if e.at.Sub(s.written) >= flushInterval {
		r.update(ctx, s)
	}
}

// flush writes the counts that are due, and forgets series that have ended.
func (r *Recorder) flush(ctx context.Context, now time.Time) {
	for _, s := range r.series.due(now) {
		r.update(ctx, s)
	}
}

func (r *Recorder) create(ctx context.Context, s *series, e entry) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	namespace := e.regarding.GetNamespace()
	if namespace == "" {
		namespace = "default" // as Kubernetes does for cluster-scoped objects
	}
	ev := &corev1.Event{
		Metadata:           &metav1.ObjectMeta{Name: r.eventName(e), Namespace: namespace},
		InvolvedObject:     e.regarding,
		Reason:             e.reason,
		Message:            e.note,
		Type:               e.kind,
		EventTime:          value.MicroTime(e.at),
		Action:             e.action,
		ReportingComponent: r.cfg.Controller,
		ReportingInstance:  e.instance,
	}
	if !r.cfg.NewForm {
		ev.Source = &corev1.EventSource{Component: r.cfg.Controller, Host: e.host}
		ev.FirstTimestamp, ev.LastTimestamp, ev.Count = value.Time(e.at), value.Time(e.at), 1
	}
	o, err := r.cfg.Events.Create(ctx, &corev1rpc.CreateEventRequest{Namespace: namespace, Object: ev})
	for more := maxNames; more > 0 && apierrors.Is(err, apierrors.AlreadyExists); more-- {
		// Another recorder has noted something about the object at the same instant.
		ev = ev.Clone() // what was sent may be in use
		ev.Metadata.Name = r.eventName(e)
		o, err = r.cfg.Events.Create(ctx, &corev1rpc.CreateEventRequest{Namespace: namespace, Object: ev})
	}
	if err != nil {
		r.drop()
		r.series.forget(s)
		level := slog.LevelWarn
		if goesWithNamespace(err) {
			level = slog.LevelDebug
		}
		r.cfg.Logger.Log(ctx, level, "cannot write an event", "reason", e.reason, "object", e.regarding.GetName(), "error",
			err)
		return
	}
	s.namespace, s.name = namespace, o.GetMetadata().GetName()
	s.count, s.writtenCount, s.seen, s.written = 1, 1, e.at, e.at
}

// goesWithNamespace says that an event could not be written because its namespace is being deleted, or gone: a matter
// of course for what happens to the namespace's last objects.
func goesWithNamespace(err error) bool {
	return apierrors.Is(err, apierrors.NotFound) || apierrors.NamespaceGoes(err)
}

func (r *Recorder) update(ctx context.Context, s *series) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	patch := append([]byte(nil), `{"series":`...)
	patch = (&corev1.EventSeries{Count: s.count, LastObservedTime: value.MicroTime(s.seen)}).AppendJSON(patch)
	if !r.cfg.NewForm {
		patch = fmt.Appendf(patch, `,"count":%d,"lastTimestamp":%q`, s.count, s.seen.UTC().Format(time.RFC3339))
	}
	patch = append(patch, '}')
	_, err := r.cfg.Events.Patch(ctx, &metav1.PatchRequest{
		Namespace: s.namespace, Name: s.name, Patch: patch, PatchType: "application/merge-patch+json",
	})
	if err != nil {
		r.drop()
		if !apierrors.Is(err, apierrors.NotFound) {
			r.cfg.Logger.Warn("cannot write an event's count", "error", err)
		}
		r.series.forget(s) // the event has expired; the next one starts afresh
		return
	}
	s.written, s.writtenCount = s.seen, s.count
}

// eventName returns a name that no other event of this recorder has: events are named after their time, made unique.
func (r *Recorder) eventName(e entry) string {
	t := max(e.at.UnixNano(), r.last+1)
	r.last = t
	name := e.regarding.GetName()
	if len(name) > 230 {
		name = name[:230]
	}
	return name + "." + strconv.FormatInt(t, 16)
}
