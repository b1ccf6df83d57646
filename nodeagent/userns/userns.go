// Package userns gives pods that want users of their own (hostUsers: false) a range of the node's user and group ids
// (USER-1, USER-2).
//
// Each pod has 65536 ids that no other pod of the node has, the same for users and groups. They come from the line of
// a user, "kubelet" as in Kubernetes, in the machine's subid files; a machine without such a line gives ids that it
// has given to nobody else. A pod keeps its range for as long as it has a directory on the node: it is written there,
// so that a restarted agent knows it. What is wrong with the files is an error that names file and line.
//
// It makes no namespace: that is the runtime's part.
package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"monoplane.dev/internal/datadir"
)

const (
	// Size is how many ids a pod has.
	Size = 65536
	// maxID is beyond all ids: the largest number of 32 bits stands for none.
	maxID = 1<<32 - 1
	// name is the file in a pod's directory that has the first of its ids.
	name = "userns"
)

// The usual places, and the user whose line counts.
const (
	SubUID = "/etc/subuid"
	SubGID = "/etc/subgid"
	User   = "kubelet"
)

// Config says where ids come from. All of it is required.
type Config struct {
	// SubUID and SubGID are the machine's files, and User the one whose lines there are for pods.
	SubUID, SubGID, User string
	// MaxPods is how many pods the node takes.
	MaxPods int
	// Dir has a directory for each pod, named by its uid.
	Dir string
}

// Ranges gives ranges to pods. It is safe for concurrent use.
type Ranges struct {
	dir          string
	first, count uint64

	mu sync.Mutex
	// of are the first ids of pods, by uid, and taken the same the other way round.
	// Invariant: both have the same pairs, and each is in a file.
	of    map[string]uint64
	taken map[uint64]string
}

// Open reads the files of the machine and the ranges that pods have.
func Open(cfg Config) (*Ranges, error) {
	r := &Ranges{dir: cfg.Dir, of: map[string]uint64{}, taken: map[uint64]string{}}
	var err error
	if r.first, r.count, err = readRange(cfg); err != nil {
		return nil, err
	}
	pods, err := os.ReadDir(cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if err := r.recall(pod.Name()); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// recall reads which range a pod has, if any.
func (r *Ranges) recall(uid string) error {
	path := filepath.Join(r.dir, uid, name)
	text, err := os.ReadFile(path) //nolint:gosec // below the pods' directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !strings.HasSuffix(string(text), "\n") {
		return nil // It is broken, and so was never used: it is on the disk before the ids are.
	}
	first, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || first < Size || first%Size != 0 {
		return fmt.Errorf("%s: %q is not the first id of a range: it must be a multiple of %d", path, text, Size)
	}
	if other, ok := r.taken[first]; ok {
		return fmt.Errorf("%s: pod %s has the ids from %d on already", path, other, first)
	}
	r.of[uid], r.taken[first] = first, uid
	return nil
}

// Of returns the first id of a pod's range, which it gets if it has none. Its directory must be there.
func (r *Ranges) Of(uid string) (first uint32, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first, ok := r.of[uid]; ok {
		return uint32(first), nil //nolint:gosec // checked when it was given
	}
	for next := r.first; next+Size <= r.first+r.count; next += Size {
		if _, ok := r.taken[next]; ok {
			continue
		}
		text := strconv.AppendUint(nil, next, 10)
		// Even if the machine stops now: two pods must never share ids.
		if err := datadir.Keep(filepath.Join(r.dir, uid, name), datadir.Flushed, append(text, '\n')); err != nil {
			return 0, fmt.Errorf("note the ids of a pod: %w", err)
		}
		r.of[uid], r.taken[next] = next, uid
		return uint32(next), nil //nolint:gosec // below maxID
	}
	return 0, fmt.Errorf("all %d ranges of ids for pods are taken", r.count/Size)
}

// Release takes a pod's range back. The pod's directory is gone, or soon will be.
func (r *Ranges) Release(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first, ok := r.of[uid]; ok {
		delete(r.of, uid)
		delete(r.taken, first)
	}
}
