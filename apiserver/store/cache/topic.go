package cache

import (
	"sort"
	"time"

	"monoplane.dev/object"
)

// topic is a log of changes. Positions count from 0 and never repeat; what is before start has been dropped.
// It is guarded by the cache's lock, but the chunks' contents, once written, may be read outside.
type topic struct {
	chunks     []*chunk
	start, end int64
	bytes      int64
	// wake is closed when something was appended, and then replaced.
	wake chan struct{}
	// woken is when that happened last to a crowd; pending is whether it is about to.
	woken   time.Time
	pending bool
	// err ends the watches that read here.
	err error
	// refs counts the watchers that read here, upToDate those that have read everything.
	refs, upToDate int
}

// chunk is a run of changes. events is kept apart from the rest so that a watcher without selectors hands out a
// part of it as it is, shared with all others.
type chunk struct {
	first  int64
	events []object.Event
	states []state
}

// state is what a change did, for watchers that select.
type state struct {
	revision  int64
	prev, cur *Item
}

func (s *state) size() int64 {
	const entry, decoded = 160, 1024 // the event, the state and their share of the chunk; what an object takes in memory
	if s.cur != nil {
		return int64(s.cur.Size) + entry + decoded
	}
	return entry
}

const chunkEvents = 256

func newTopic() *topic { return &topic{wake: make(chan struct{})} }

func (t *topic) append(e object.Event, s state) {
	var last *chunk
	if n := len(t.chunks); n > 0 {
		last = t.chunks[n-1]
	}
	if last == nil || len(last.events) == cap(last.events) {
		// The first chunk of a quiet topic stays small.
		size := chunkEvents
		if last == nil {
			size = 8
		} else if n := 2 * cap(last.events); n < size {
			size = n
		}
		last = &chunk{first: t.end, events: make([]object.Event, 0, size), states: make([]state, 0, size)}
		t.chunks = append(t.chunks, last)
	}
	last.events = append(last.events, e)
	last.states = append(last.states, s)
	t.end++
	t.bytes += s.size()
	t.upToDate = 0
}

// hasRead notes that a watcher has read everything. What all have read is dropped: a topic is not a history.
func (t *topic) hasRead() {
	t.upToDate++
	t.drop()
}

// leave notes that a watcher that has read up to position seen is gone.
func (t *topic) leave(seen int64) {
	t.refs--
	if seen == t.end {
		t.upToDate--
	}
	t.drop()
}

func (t *topic) drop() {
	if t.upToDate == t.refs {
		t.chunks, t.start, t.bytes = nil, t.end, 0
	}
}

// trim drops the oldest chunks while there are more than events changes or bytes bytes. It returns the revision
// of the newest change that was dropped, 0 when none was.
func (t *topic) trim(events int, bytes int64) (dropped int64) {
	n := 0
	for n < len(t.chunks)-1 && (t.end-t.start > int64(events) || t.bytes > bytes) {
		old := t.chunks[n]
		for i := range old.states {
			t.bytes -= old.states[i].size()
		}
		dropped = old.states[len(old.states)-1].revision
		t.start = old.first + int64(len(old.states))
		n++
	}
	if n > 0 {
		t.chunks = append(t.chunks[:0:0], t.chunks[n:]...)
	}
	return dropped
}

// broadcast wakes everybody who waits for changes.
func (t *topic) broadcast() {
	close(t.wake)
	t.wake = make(chan struct{})
}

// read returns the changes of one chunk from position pos on, at most limit.
func (t *topic) read(pos int64, limit int) ([]object.Event, []state) {
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].first > pos }) - 1
	if i < 0 {
		return nil, nil
	}
	c := t.chunks[i]
	from := int(pos - c.first)
	to := min(len(c.events), from+limit)
	if from >= to {
		return nil, nil
	}
	return c.events[from:to:to], c.states[from:to:to]
}

// after returns the position of the first change after revision.
func (t *topic) after(revision int64) int64 {
	i := sort.Search(len(t.chunks), func(i int) bool {
		s := t.chunks[i].states
		return s[len(s)-1].revision > revision
	})
	if i == len(t.chunks) {
		return t.end
	}
	c := t.chunks[i]
	return c.first + int64(sort.Search(len(c.states), func(i int) bool { return c.states[i].revision > revision }))
}
