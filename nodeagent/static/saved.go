package static

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/codec"
	"monoplane.dev/internal/datadir"
)

// Saved keeps the static pods that an agent has started, one file each, in a directory of its own. An agent that comes
// back knows by them how long a pod may take to stop whose manifest has gone meanwhile, and what a URL that does not
// answer has said before. The zero value keeps nothing.
type Saved struct{ Dir string }

const savedSuffix = ".json"

func (s Saved) path(uid string) string { return filepath.Join(s.Dir, uid+savedSuffix) }

// Put keeps a pod.
func (s Saved) Put(p *corev1.Pod) error {
	if s.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	return datadir.Keep(s.path(p.GetMetadata().GetUid()), datadir.Flushed, codec.AppendObject(nil, p))
}

// Drop forgets a pod.
func (s Saved) Drop(uid string) error {
	if s.Dir == "" {
		return nil
	}
	if err := os.Remove(s.path(uid)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// All returns the pods that are kept. What cannot be read is left out: one of an earlier version may be half written.
func (s Saved) All() []*corev1.Pod {
	entries, err := os.ReadDir(s.Dir)
	if s.Dir == "" || err != nil {
		return nil
	}
	var out []*corev1.Pod
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), savedSuffix)
		if !ok {
			continue
		}
		data, err := os.ReadFile(s.path(uid))
		if err != nil {
			continue
		}
		p := &corev1.Pod{}
		if _, err := codec.DecodeObject(data, p); err == nil && p.GetMetadata().GetUid() == uid && p.GetSpec() != nil {
			out = append(out, p)
		}
	}
	return out
}
