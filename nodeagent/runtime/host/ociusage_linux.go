package host

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
)

// usageAge is how old the answer to what a container has written may be: all of its files are looked at for it.
const usageAge = 10 * time.Second

// written is what a container of an image has written, as it was measured last. The zero value is ready.
type written struct {
	mu      sync.Mutex
	at      time.Time // Zero until it was measured once.
	usage   images.Usage
	running bool // It is being measured.
}

// layer returns what a container has written to the layer of its own, and has it measured anew if that is too old. A
// caller does not wait for that: a container can have any number of files. Nothing is returned until it is known.
func (r *Runtime) layer(c *container) *runtimeapi.FilesystemUsage {
	w := &c.written
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.at) > usageAge && !w.running {
		w.running = true
		r.start(func() { r.measure(c) })
	}
	if w.at.IsZero() {
		return nil
	}
	return &runtimeapi.FilesystemUsage{Timestamp: w.at.UnixNano(), UsedBytes: known(w.usage.Bytes),
		InodesUsed: known(w.usage.Inodes)}
}

// measure looks at the files of one container, one after the other of all that are to be measured.
func (r *Runtime) measure(c *container) {
	var usage images.Usage
	err := context.Canceled
	select {
	case r.measuring <- struct{}{}:
		usage, err = r.oci.Images.RootUsage(r.closing, c.id)
		<-r.measuring
	case <-r.closing.Done():
	}
	w := &c.written
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	if err == nil || errors.Is(err, fs.ErrPermission) { // Else it has gone meanwhile, or was never started.
		w.at, w.usage = time.Now(), usage
	}
}
