package watchcache

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
	// bytes is what the log alone keeps alive, chunkBytes what a chunk may hold before the next one is begun.
	bytes, chunkBytes int64
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
	// bytes is what the log alone keeps alive for this chunk, size what its objects take, alive or not.
	bytes, size int64
}

// state is what a change did, for watchers that select.
type state struct {
	revision  int64
	prev, cur *Item
	// left is what prev takes and cur does not share. A state lives on in the log alone when the next one has come, so
	// that it is counted then, once, and goes when the change that replaced it is dropped.
	left int64
}

const (
	chunkEvents = 256
	// pieceBytes bounds what is handed out at once, and so what a watcher holds that is slow to send it: not more than
	// this and one object.
	pieceBytes = 1 << 20
	// entryBytes is a change itself: the event, the state, their share of the chunk, and the head of a deleted object
	// that carries the revision of its deletion.
	entryBytes = 160
	headBytes  = 512
)

// kept is what the log alone keeps alive because of the change.
func (s *state) kept() int64 {
	if s.cur == nil {
		return entryBytes + headBytes + s.left
	}
	return entryBytes + s.left
}

// size is what the change takes whoever holds on to it.
func (s *state) size() int64 {
	n := s.kept()
	if s.cur != nil {
		n += int64(s.cur.Size)
	}
	return n
}

func newTopic(historyBytes int64) *topic {
	const chunks = 8
	return &topic{wake: make(chan struct{}), chunkBytes: min(pieceBytes, historyBytes/chunks)}
}

func (t *topic) append(e object.Event, s state) {
	var last *chunk
	if n := len(t.chunks); n > 0 {
		last = t.chunks[n-1]
	}
	if last == nil || len(last.events) == cap(last.events) || last.size >= t.chunkBytes {
		// The first chunk of a quiet topic stays small.
		size := 8
		if last != nil {
			size = max(size, min(chunkEvents, 2*len(last.events)))
		}
		last = &chunk{first: t.end, events: make([]object.Event, 0, size), states: make([]state, 0, size)}
		t.chunks = append(t.chunks, last)
	}
	last.events = append(last.events, e)
	last.states = append(last.states, s)
	last.bytes += s.kept()
	last.size += s.size()
	t.end++
	t.bytes += s.kept()
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
		t.bytes -= old.bytes
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

// splitAfter says whether the revision right after this one has several changes.
func (t *topic) splitAfter(revision int64) bool {
	pos, changes := t.after(revision), 0
	for ; changes < 2 && pos < t.end; pos++ {
		if _, states := t.read(pos, 1); states[0].revision != revision+1 {
			break
		}
		changes++
	}
	return changes > 1
}
