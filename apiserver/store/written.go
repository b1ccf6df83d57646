package store

import "sync"

const (
	// logged is how many of the last writes etcd keeps in memory, about; logBytes is how large they may be together
	// before it is made to drop them. Writes of usual size never are.
	logged   = 100
	logBytes = 8 << 20
	// databaseBytes is how much may be written before etcd's history is compacted to half of that, whatever its age: the
	// last 5 000 revisions of objects of a megabyte would fill the database.
	databaseBytes = 128 << 20
)

// written counts the bytes of what the feed has seen written.
type written struct {
	mu    sync.Mutex
	total int64
	last  [logged]int64
	next  int
	sum   int64 // of last
}

func (w *written) add(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += n
	w.sum += n - w.last[w.next]
	w.last[w.next] = n
	w.next = (w.next + 1) % logged
}

// bytes returns how much was written in all, and by the last writes that etcd still has in memory.
func (w *written) bytes() (total, log int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, w.sum
}

// forgotten notes that etcd has dropped the writes up to now.
func (w *written) forgotten() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.sum = [logged]int64{}, 0
}
