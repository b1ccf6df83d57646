package static

import (
	"context"
	"net/http"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// Config says where manifests are. NodeName and Complete are required.
type Config struct {
	// NodeName is the node's name.
	NodeName string
	// Dir is a directory of manifests, or one manifest; it need not exist. Empty for none.
	Dir string
	// URL answers with a manifest; empty for none. Header goes with each request.
	URL    string
	Header http.Header
	// Client fetches the URL; http.DefaultClient when nil.
	Client *http.Client
	// Complete fills in what a server fills in when a pod is created, and checks the pod as one would.
	Complete func(*corev1.Pod) error
	// Period is the time between two looks; 20 s when zero.
	Period time.Duration
	// Notify tells of changes in Dir as they happen: it calls changed until the returned function is called. Nil, or an
	// error, leaves it to the looks.
	Notify func(dir string, changed func()) (stop func(), err error)
}

// State is what the manifests say.
type State struct {
	// Pods are the static pods that should run, one for each namespace and name. They must not be changed.
	Pods []*corev1.Pod
	// Read lists the kinds of origins that have been read at least once. Nothing is known of what the others want.
	Read []string
	// Wrong says which manifests cannot be read or used and why; Odd which have unknown fields.
	Wrong, Odd []string
}

// Equal reports whether there is nothing new in t.
func (s State) Equal(t State) bool {
	same := func(a, b *corev1.Pod) bool { return a.GetMetadata().GetUid() == b.GetMetadata().GetUid() }
	return slices.EqualFunc(s.Pods, t.Pods, same) && slices.Equal(s.Read, t.Read) && slices.Equal(s.Wrong, t.Wrong) &&
		slices.Equal(s.Odd, t.Odd)
}

// Watcher looks at the manifests again and again.
type Watcher struct {
	cfg     Config
	origins []*origin
	last    State
}

// NewWatcher returns a watcher that has looked at nothing yet.
func NewWatcher(cfg Config) *Watcher {
	if cfg.Period <= 0 {
		cfg.Period = 20 * time.Second
	}
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	w := &Watcher{cfg: cfg}
	if cfg.Dir != "" {
		w.origins = append(w.origins, &origin{kind: File, manifests: map[string]*manifest{}})
	}
	if cfg.URL != "" {
		w.origins = append(w.origins, &origin{kind: HTTP, manifests: map[string]*manifest{}})
	}
	return w
}

// Kinds returns the kinds of the origins that there are.
func (w *Watcher) Kinds() []string {
	var out []string
	for _, o := range w.origins {
		out = append(out, o.kind)
	}
	return out
}

// Look looks once, at everything but the URL when files is set. Only one goroutine may look at a time.
func (w *Watcher) Look(ctx context.Context, files bool) State {
	for _, o := range w.origins {
		switch {
		case o.kind == File:
			w.cfg.readDir(o)
		case !files:
			w.cfg.readURL(ctx, o)
		}
	}
	w.last = w.cfg.all(w.origins)
	return w.last
}

// Run looks until ctx ends and calls tell with what has changed since the last look.
func (w *Watcher) Run(ctx context.Context, tell func(State)) {
	changed := make(chan struct{}, 1)
	if w.cfg.Notify != nil && w.cfg.Dir != "" {
		stop, err := w.cfg.Notify(w.cfg.Dir, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if err == nil {
			defer stop()
		}
	}
	look := func(files bool) {
		before := w.last
		if now := w.Look(ctx, files); ctx.Err() == nil && !now.Equal(before) {
			tell(now)
		}
	}
	look(false) // what has changed before anybody told of it
	tick := time.NewTicker(w.cfg.Period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			look(false)
		case <-changed:
			if !settle(ctx, changed) {
				return
			}
			look(true)
		case <-ctx.Done():
			return
		}
	}
}

// quiet is how long a directory must be left alone before it is read: a file that is being written is not whole.
const quiet = 100 * time.Millisecond

// settle waits until changed has been quiet for a while, but not for ever; it returns false when ctx ends.
func settle(ctx context.Context, changed <-chan struct{}) bool {
	end := time.Now().Add(10 * quiet)
	for time.Now().Before(end) {
		wait := time.NewTimer(quiet)
		select {
		case <-changed:
			wait.Stop()
		case <-wait.C:
			return true
		case <-ctx.Done():
			wait.Stop()
			return false
		}
	}
	return true
}

func (c *Config) now() time.Time { return time.Now() }
