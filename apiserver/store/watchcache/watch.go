package watchcache

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/internal/tree"
	"monoplane.dev/object"
)

// WatchOptions say what a watcher sees and from where on.
type WatchOptions struct {
	Selection
	// From is the revision after which changes are wanted, which may be one that is still to come. Not used with Initial.
	From int64
	// Initial begins with every object as ADDED, as they are now.
	Initial bool
	// Bookmarks asks for bookmarks from time to time; InitialEnd also for the one that ends the initial events.
	Bookmarks, InitialEnd bool
	// Deadline is when the watch is going to end, shortly before which there is a bookmark; zero when nobody knows.
	Deadline time.Time
}

// batchEvents bounds, with pieceBytes, what Next returns at once.
const batchEvents = 512

// beforeDeadline is how long before the end of a watch its last bookmark comes, as in Kubernetes.
const beforeDeadline = 2 * time.Second

// ErrStopped says that a watcher was stopped by its owner.
var ErrStopped = errors.New("the watch has been stopped")

// Watcher delivers changes. Next is called by one goroutine, Stop by any.
//
//	initial events ──► (bookmark: initial events end) ──► changes and bookmarks ──► error, for good
type Watcher struct {
	c        *Cache
	f        *filter
	t        *topic
	topicKey *topicKey
	// pos is the position in t of the next change, limit how far behind it may be. seen is the last pos of which t
	// was told; only for a watcher of a part of the kind.
	pos, limit, seen int64
	// left is set by Stop; guarded by the cache's lock, as seen is.
	left bool

	// initial holds the objects to begin with, cursor the last key that was delivered of them.
	initial       *tree.Tree[*Item]
	initialPrefix string
	cursor        string
	initialEnd    bool
	// revision is up to where the initial events are complete.
	revision int64
	// backlog holds earlier changes for a watcher of a part of the kind, in pieces.
	backlog [][]object.Event

	// future is opts.From while nothing after it has come: changes up to it are none for the watcher.
	future int64

	bookmarks bool
	deadline  time.Time
	next      time.Time
	timer     *time.Timer // of wait, kept from one to the next

	stop    chan struct{}
	stopped sync.Once
	// err is what ended the watch.
	err error
}

// Watch starts a watcher. The error is Expired when the history does not go back to opts.From.
func (c *Cache) Watch(opts WatchOptions) (*Watcher, error) {
	f, err := c.compile(opts.Selection)
	if err != nil {
		return nil, err
	}
	w := &Watcher{c: c, f: f, bookmarks: opts.Bookmarks, deadline: opts.Deadline, stop: make(chan struct{})}
	w.schedule()
	// Read first, so that every change up to it is in the items below.
	applied := c.cfg.Progress.Revision()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return nil, c.closed
	}
	if !opts.Initial && opts.From < c.since {
		return nil, expired(opts.From, c.since)
	}
	if !opts.Initial && c.log.splitAfter(opts.From) {
		return nil, apierrors.New(apierrors.Expired,
			"the next resource version after %d deleted several objects, and it is not known which of them have been seen",
			opts.From)
	}
	w.t, w.topicKey = c.log, f.part
	if f.part != nil {
		w.t = c.topics[*f.part]
		if w.t == nil {
			w.t = newTopic(c.cfg.HistoryBytes)
			c.topics[*f.part] = w.t
		}
	}
	w.t.refs++
	if f.part != nil {
		w.seen = w.t.end
		w.t.upToDate++
	}
	c.watchers++
	if !opts.Initial && opts.From > c.revision {
		w.future = opts.From
	}
	switch {
	case opts.Initial:
		w.initial, w.initialPrefix = c.source(f)
		w.initialEnd = opts.InitialEnd && opts.Bookmarks
		w.revision = max(applied, c.revision)
		w.pos = w.t.end
	case f.part != nil:
		w.backlog = w.matchLog(opts.From)
		w.pos = w.t.end
	default:
		w.pos = w.t.after(opts.From)
	}
	// Who begins far back in the history is not slow for that.
	w.limit = w.t.end - w.pos + int64(c.cfg.WatchBuffer)
	return w, nil
}

func expired(from, since int64) error {
	return apierrors.New(apierrors.Expired, "too old resource version: %d (%d)", from, since)
}

// matchLog returns what the watcher would have seen of the changes after revision, a piece for each chunk.
func (w *Watcher) matchLog(revision int64) [][]object.Event {
	var out [][]object.Event
	log := w.c.log
	for pos := log.after(revision); pos < log.end; {
		events, states := log.read(pos, chunkEvents)
		if piece := w.filter(nil, events, states); len(piece) > 0 {
			out = append(out, piece)
		}
		pos += int64(len(events))
	}
	return out
}

// Stop ends the watch. Next then returns ErrStopped.
func (w *Watcher) Stop() {
	w.stopped.Do(func() {
		close(w.stop)
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		w.c.watchers--
		w.left = true
		if w.topicKey == nil {
			w.t.refs--
			return
		}
		w.t.leave(w.seen)
		if w.t.refs == 0 && w.c.topics[*w.topicKey] == w.t {
			delete(w.c.topics, *w.topicKey)
		}
	})
}

// Next waits for events and returns some, oldest first. The slice is shared with other watchers and must not be
// changed. An error other than ctx's ends the watch.
func (w *Watcher) Next(ctx context.Context) ([]object.Event, error) {
	for {
		select {
		case <-w.stop:
			if w.err == nil {
				w.err = ErrStopped
			}
		default:
		}
		if w.err != nil {
			return nil, w.err
		}
		if w.initial != nil {
			if events := w.nextInitial(); len(events) > 0 {
				return events, nil
			}
			continue
		}
		if len(w.backlog) > 0 {
			events := w.backlog[0]
			w.backlog[0], w.backlog = nil, w.backlog[1:]
			return events, nil
		}
		events, wake := w.read()
		if len(events) > 0 {
			return events, nil
		}
		// Without wake all changes of this round were filtered out, or the watch is over.
		if wake != nil {
			if err := w.wait(ctx, wake); err != nil {
				return nil, err
			}
		}
	}
}

// nextInitial returns the next objects that exist already, and the bookmark after the last.
func (w *Watcher) nextInitial() []object.Event {
	var events []object.Event
	full, size := false, 0
	for key, item := range w.initial.From(max(w.initialPrefix, w.cursor)) {
		if !strings.HasPrefix(key, w.initialPrefix) {
			break
		}
		if key == w.cursor || !w.f.match(item) {
			continue
		}
		if len(events) == batchEvents || size >= pieceBytes {
			full = true
			break
		}
		size += item.Size
		events = append(events, object.Event{Type: object.Added, Object: item.Object})
		w.cursor = key
	}
	if full {
		return events
	}
	w.initial = nil
	if w.initialEnd {
		events = append(events, w.bookmark(w.revision, true))
	}
	return events
}

// read returns changes that are there already, or the channel that is closed when there are more, or sets err.
func (w *Watcher) read() ([]object.Event, chan struct{}) {
	// Read first: if then nothing is left to deliver, the watcher has seen everything up to it.
	applied := w.c.cfg.Progress.Revision()
	w.c.mu.RLock()
	t, pos := w.t, w.pos
	if t.err != nil {
		w.c.mu.RUnlock()
		w.err = t.err
		return nil, nil
	}
	lag := t.end - pos
	if pos < t.start || lag > w.limit {
		w.c.mu.RUnlock()
		w.cutOff(lag, pos < t.start)
		return nil, nil
	}
	events, states := t.read(pos, batchEvents)
	wake := t.wake
	last := w.topicKey != nil && len(events) > 0 && pos+int64(len(events)) == t.end
	w.c.mu.RUnlock()

	if len(events) > 0 {
		w.pos += int64(len(events))
		if last {
			w.upToDate()
		}
		events, states = w.past(events, states)
		if !w.f.all() {
			events = w.filter(nil, events, states)
		}
		wake = nil
	}
	if w.bookmarks && wake != nil && !time.Now().Before(w.next) {
		if applied >= w.future {
			return []object.Event{w.bookmark(applied, false)}, nil
		}
		w.schedule()
	}
	return events, wake
}

// past returns those of the events that come after the revision that the watcher asked for.
func (w *Watcher) past(events []object.Event, states []state) ([]object.Event, []state) {
	if w.future == 0 {
		return events, states
	}
	n := 0
	for n < len(states) && states[n].revision <= w.future {
		n++
	}
	if n < len(states) {
		w.future = 0
	}
	return events[n:], states[n:]
}

// schedule sets when the next bookmark is due: after a while, or shortly before the watch ends.
func (w *Watcher) schedule() {
	now := time.Now()
	w.next = now.Add(w.c.cfg.BookmarkInterval)
	if last := w.deadline.Add(-beforeDeadline); last.After(now) && last.Before(w.next) {
		w.next = last
	}
}

// upToDate tells the topic that the watcher has read everything, if that is still so.
func (w *Watcher) upToDate() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.pos == w.t.end && w.seen != w.pos && !w.left {
		w.seen = w.pos
		w.t.hasRead()
	}
}

// wait returns when there may be something to read.
func (w *Watcher) wait(ctx context.Context, wake chan struct{}) error {
	var bookmark <-chan time.Time
	if w.bookmarks {
		// A watcher waits after every change. Stopping the timer meanwhile keeps idle programs asleep.
		if rest := time.Until(w.next); w.timer == nil {
			w.timer = time.NewTimer(rest)
		} else {
			w.timer.Reset(rest)
		}
		defer w.timer.Stop()
		bookmark = w.timer.C
	}
	select {
	case <-wake:
	case <-bookmark:
	case <-w.stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// filter appends to out what a watcher with selectors sees of events: an object that begins to match is ADDED,
// one that stops is DELETED, in the state in which it still matched.
func (w *Watcher) filter(out, events []object.Event, states []state) []object.Event {
	for i := range states {
		s := &states[i]
		was, is := w.f.match(s.prev), w.f.match(s.cur)
		switch {
		case is && was:
			out = append(out, object.Event{Type: object.Modified, Object: s.cur.Object})
		case is:
			out = append(out, object.Event{Type: object.Added, Object: s.cur.Object})
		case was && s.cur == nil:
			out = append(out, events[i])
		case was:
			out = append(out, object.Event{Type: object.Deleted, Object: WithRevision(s.prev.Object, s.revision)})
		}
	}
	return out
}

// bookmark says that the watcher has seen everything up to revision.
func (w *Watcher) bookmark(revision int64, initialEnd bool) object.Event {
	w.schedule()
	meta := &metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(revision, 10)}
	if initialEnd {
		meta.Annotations = map[string]string{object.InitialEventsEnd: "true"}
	}
	o := w.c.cfg.Kind.New()
	o.SetMetadata(meta)
	return object.Event{Type: object.Bookmark, Object: o}
}

// cutOff ends the watch because it is too slow. A client whose place in the history is lost must list again;
// otherwise it may go on from the last revision it has seen.
func (w *Watcher) cutOff(lag int64, lost bool) {
	w.c.mu.Lock()
	w.c.cutOff++
	w.c.mu.Unlock()
	w.Stop()
	const text = "the watch was too slow and has been cut off, %d changes behind: "
	if lost {
		w.err = apierrors.New(apierrors.Expired, text+"the oldest of them are no longer kept", lag)
		return
	}
	w.err = apierrors.New(apierrors.TooManyRequests, text+"watch again from the last resourceVersion",
		lag).WithRetryAfter(1)
}
