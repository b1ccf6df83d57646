package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

const (
	// watcherPatience is how long somebody who has attached may leave output unread once the pipe to it is full. The
	// container waits meanwhile, as it would for a slow terminal; after that the watcher is left behind.
	watcherPatience = 10 * time.Second
	// maxWatchers bounds who can be attached to a container at a time.
	maxWatchers = 64
)

// watcher is one who has attached.
type watcher struct {
	late chan struct{} // Closed when it has not read for too long.
	once sync.Once
}

// watchers are those who get one of a container's outputs.
type watchers struct {
	// any says that list is not empty: most containers are never watched, and write without asking for the lock.
	any  atomic.Bool
	mu   sync.Mutex
	list map[*watcher]*os.File
}

// add fails when there are too many.
func (s *watchers) add(w *watcher, to *os.File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) >= maxWatchers {
		return false
	}
	if s.list == nil {
		s.list = map[*watcher]*os.File{}
	}
	s.list[w] = to
	s.any.Store(true)
	return true
}

func (s *watchers) remove(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, w)
	s.any.Store(len(s.list) > 0)
}

// write gives everybody what was read. Who does not take it in time gets no more.
func (s *watchers) write(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, to := range s.list {
		_ = to.SetWriteDeadline(time.Now().Add(watcherPatience))
		if _, err := to.Write(b); err != nil {
			delete(s.list, w)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				w.once.Do(func() { close(w.late) })
			}
		}
	}
	s.any.Store(len(s.list) > 0)
}

// watched reads a container's output, and shows it to those who watch.
type watched struct {
	from *os.File
	by   *watchers
}

// Read implements io.Reader.
func (w watched) Read(b []byte) (int, error) {
	n, err := w.from.Read(b)
	if n > 0 && w.by.any.Load() {
		w.by.write(b[:n])
	}
	return n, err
}

// attach joins a container's input and outputs until it has ended or the caller goes away.
func (p *pod) attach(req *shimwire.AttachRequest, files []*os.File, gone <-chan struct{}) error {
	if len(files) != 3 {
		return errors.New("three descriptors are needed")
	}
	c, err := p.find(req.ContainerID)
	if err == nil {
		<-c.begun
		err = c.running()
	}
	if err != nil {
		return err
	}
	w := &watcher{late: make(chan struct{})}
	for i := range c.watchers {
		if !c.watchers[i].add(w, files[i+1]) {
			c.watchers[0].remove(w)
			return errors.New("too many have attached to the container")
		}
		defer c.watchers[i].remove(w)
	}
	typed := make(chan struct{})
	to, err := c.typing(req.Once)
	if err != nil {
		return err
	}
	go func() {
		defer close(typed)
		if to == nil {
			return
		}
		// By plain reads and writes: either end may have to wait, and what File.ReadFrom leaves to the kernel waits for one.
		_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{files[0]})
		_ = to.Close() // Or the container's input would not end while somebody is attached who has nothing to say.
	}()
	defer func() {
		// What waits for either side is let go: the caller's end, and this caller's own copy of the container's.
		_ = files[0].SetReadDeadline(time.Now())
		if to != nil {
			_ = to.SetWriteDeadline(time.Now())
		}
		<-typed
	}()
	select {
	case <-c.done:
		return nil
	case <-gone:
		return nil
	case <-w.late:
		return errors.New("the output was not read for " + watcherPatience.String())
	}
}

// typing returns a file of the caller's own that leads to the container's input, nil when it has none. The one that is
// to be closed for all is the container's itself.
func (c *container) typing(once bool) (*os.File, error) {
	in := c.input
	if c.req.Terminal {
		in = c.outputs[0]
	}
	if in == nil || once && !c.req.Terminal {
		return in, nil
	}
	raw, err := in.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, failed := -1, error(nil)
	if err := raw.Control(func(from uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if fd, failed = syscall.Dup(int(from)); failed == nil {
			syscall.CloseOnExec(fd)
		}
	}); err != nil {
		return nil, nil //nolint:nilerr // Closed: somebody has come to the end of what the container gets.
	}
	if failed != nil {
		return nil, os.NewSyscallError("dup", failed)
	}
	return os.NewFile(uintptr(fd), "typing"), nil
}

// resize tells a container's terminal its size.
func (p *pod) resize(req *shimwire.ResizeRequest) error {
	c, err := p.find(req.ContainerID)
	if err != nil {
		return err
	}
	<-c.begun
	if !c.req.Terminal || c.running() != nil {
		return errors.New("the container has no terminal")
	}
	size := [4]uint16{uint16(req.Height), uint16(req.Width)}
	raw, err := c.outputs[0].SyscallConn()
	if err != nil {
		return err
	}
	if gone := raw.Control(func(fd uintptr) {
		err = ioctl(int(fd), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size)))
	}); gone != nil {
		return gone
	}
	return err
}
