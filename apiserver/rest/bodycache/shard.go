package bodycache

import "sync"

// shard holds two generations of entries. New and used entries live in the young one; when it has grown to
// half of the limit it becomes the old one, and what the old one held is dropped. So an entry is dropped only
// when it was not used while half of the limit was added.
type shard struct {
	mu sync.RWMutex
	// half is the size in bytes at which the young generation becomes the old one.
	half       int64
	size       int64
	young, old map[key]*entry
}

// get finds the entry of k, or makes one for uid.
func (s *shard) get(k key, uid string) (e *entry, created bool) {
	s.mu.RLock()
	e = s.young[k]
	s.mu.RUnlock()
	if e != nil {
		return e, false
	}
	if s.half <= 0 {
		return &entry{uid: uid}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.young[k]; e != nil {
		return e, false
	}
	if s.young == nil {
		s.young = make(map[key]*entry)
	}
	if e = s.old[k]; e != nil {
		delete(s.old, k)
		s.young[k] = e
		s.size += e.size + overhead
		s.rotate()
		return e, false
	}
	e = &entry{uid: uid}
	s.young[k] = e
	s.size += overhead
	return e, true
}

// grew counts the body of an entry that get has made.
func (s *shard) grew(k key, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.size = int64(len(e.body))
	if s.young[k] != e {
		return
	}
	s.size += e.size
	s.rotate()
}

func (s *shard) rotate() {
	if s.size > s.half {
		s.old, s.young, s.size = s.young, nil, 0
	}
}
