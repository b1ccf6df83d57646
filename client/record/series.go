package record

import "time"

const (
	// flushInterval is the least time between two writes of one series.
	flushInterval = 10 * time.Second
	// seriesEnd is how long a series lives without a new event, as in Kubernetes.
	seriesEnd = 6 * time.Minute
	// maxSeries bounds the memory; the oldest are forgotten first.
	maxSeries = 4096
	// Events about one object: a burst, and one more each refill.
	burst  = 25
	refill = 30 * time.Second
)

type seriesKey struct{ instance, uid, name, fieldPath, kind, reason, note string }

// series is one event that may repeat.
type series struct {
	key             seriesKey
	namespace, name string // of the event; name is empty until it has been written
	count           int32
	writtenCount    int32
	seen, written   time.Time
}

// bucket limits the events about one object.
type bucket struct {
	tokens float64
	at     time.Time
}

// seriesTable finds the series of an event.
type seriesTable struct {
	series  map[seriesKey]*series
	buckets map[string]*bucket
}

func newSeriesTable() *seriesTable {
	return &seriesTable{series: map[seriesKey]*series{}, buckets: map[string]*bucket{}}
}

// find returns the series that e belongs to, a new one if need be, or limited when there are too many about the
// object. Repeats are never limited.
func (t *seriesTable) find(e entry) (s *series, limited bool) {
	k := seriesKey{
		e.instance, e.regarding.GetUid(), e.regarding.GetNamespace() + "/" + e.regarding.GetName(),
		e.regarding.GetFieldPath(),
		e.kind, e.reason, e.note,
	}
	if s, ok := t.series[k]; ok && e.at.Sub(s.seen) < seriesEnd {
		return s, false
	}
	b := t.buckets[k.uid+k.name]
	if b == nil {
		b = &bucket{tokens: burst}
		t.buckets[k.uid+k.name] = b
	} else {
		b.tokens = min(burst, b.tokens+float64(e.at.Sub(b.at))/float64(refill))
	}
	b.at = e.at
	if b.tokens < 1 {
		return nil, true
	}
	b.tokens--
	if len(t.series) >= maxSeries {
		t.evict()
	}
	s = &series{key: k, seen: e.at}
	t.series[k] = s
	return s, false
}

// evict forgets the older half.
func (t *seriesTable) evict() {
	var newest, oldest time.Time
	for _, s := range t.series {
		if oldest.IsZero() || s.seen.Before(oldest) {
			oldest = s.seen
		}
		if s.seen.After(newest) {
			newest = s.seen
		}
	}
	middle := oldest.Add(newest.Sub(oldest) / 2)
	for k, s := range t.series {
		if !s.seen.After(middle) {
			delete(t.series, k)
		}
	}
}

func (t *seriesTable) forget(s *series) { delete(t.series, s.key) }

// due returns the series with a count to write, and forgets what has ended.
func (t *seriesTable) due(now time.Time) []*series {
	var due []*series
	for k, s := range t.series {
		if s.count != s.writtenCount && now.Sub(s.written) >= flushInterval {
			due = append(due, s)
		} else if now.Sub(s.seen) >= seriesEnd {
			delete(t.series, k)
		}
	}
	for k, b := range t.buckets {
		if now.Sub(b.at) >= burst*refill {
			delete(t.buckets, k)
		}
	}
	return due
}
