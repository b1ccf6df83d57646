package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// sandbox is one pod sandbox.
//
//	making ──► ready ──► ending ──► gone
//	              └────────────────────┘
//
// ready: its shim lives. ending: the shim has died or was told to end or does not answer, and what it left is being
// killed, for as long as that takes. gone: no process of the pod is left, and every container that was started is
// exited. Only ready is SANDBOX_READY.
type sandbox struct {
	id  string
	dir string
	rec *sandboxRecord
	// shim is its process, as far as known. It is set before others know the sandbox.
	shim sys.Proc

	creating sync.Mutex // Held while a container is made, or the limits of the pod are set.
	cpu      meter

	// Guarded by Runtime.mu.
	containers    map[string]*container
	ending        bool
	orderly       bool          // The shim has said that nothing is left.
	condemned     bool          // The shim did not end it in time: it is ended without it.
	trouble       string        // What could not be killed so far.
	version       int64         // The dialect of its shim; 0 as long as it is not known.
	noView        string        // Why its containers can have no view, if it is known that they cannot.
	atOnce        chan struct{} // Closed when nobody's grace counts any more.
	init          int           // The process 1 that its containers share; 0 for none.
	users         int           // The shim's descriptor of its user namespace; 0 for none.
	ips           []string      // Its addresses, if it has a network of its own.
	addressesBack bool          // It has given them back, as nothing runs in it any more.
	conn          *shimConn     // The latest connection; nil while there is none.
	changed       chan struct{} // Closed and replaced when conn changes.
	gone          chan struct{} // Closed when the sandbox is gone.
	// resources are those of all its containers together, nil for none that are known.
	resources *runtimeapi.LinuxContainerResources
}

// container is one container of a sandbox.
type container struct {
	id  string
	dir string
	sb  *sandbox
	rec *containerRecord
	// state is the newest that is known; its phase only grows. Guarded by Runtime.mu.
	state shimwire.Container
	// resources are those that the container was given after it was made, nil for none, and unenforced says which of
	// them do not hold, as far as this process has given them. Guarded by Runtime.mu.
	resources  *runtimeapi.LinuxContainerResources
	unenforced []string
	// updating makes one change of them at a time.
	updating sync.Mutex
	// checkpointing is held while a checkpoint is made.
	checkpointing sync.Mutex
	// exited is closed when state.Phase is Exited.
	exited  chan struct{}
	cpu     meter
	written written
	// processes is for where there is no cgroup that counts.
	processes ofProcesses

	// Of a stop, guarded by Runtime.mu: when the runtime steps in, and whether it watches for that and has signalled.
	killAt            time.Time
	guarded, signaled bool
	poke              chan struct{} // Has a token when killAt has changed.
}

// podName is what no two sandboxes may share.
type podName struct {
	namespace, name, uid string
	attempt              uint32
}

func nameOf(m *runtimeapi.PodSandboxMetadata) podName {
	return podName{m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt()}
}

func (r *Runtime) newSandbox(id string, rec *sandboxRecord) *sandbox {
	return &sandbox{
		id: id, dir: filepath.Join(r.dir, podsDir, id), rec: rec,
		containers: map[string]*container{}, changed: make(chan struct{}), gone: make(chan struct{}),
		atOnce: make(chan struct{}),
	}
}

func (sb *sandbox) isGone() bool { return isClosed(sb.gone) }

func (sb *sandbox) newContainer(id string, rec *containerRecord) *container {
	return &container{
		id: id, sb: sb, rec: rec, dir: filepath.Join(sb.dir, shim.Containers, id),
		state: shimwire.Container{ID: id}, exited: make(chan struct{}), poke: make(chan struct{}, 1),
	}
}

// setConnLocked replaces the connection.
func (sb *sandbox) setConnLocked(c *shimConn) {
	sb.conn = c
	close(sb.changed)
	sb.changed = make(chan struct{})
}

// shimOf waits until the sandbox's shim is connected. It returns nil when the sandbox is gone.
func (r *Runtime) shimOf(ctx context.Context, sb *sandbox) (*shimConn, error) {
	for {
		r.mu.RLock()
		conn, changed := sb.conn, sb.changed
		r.mu.RUnlock()
		if conn != nil {
			return conn, nil
		}
		select {
		case <-sb.gone:
			return nil, nil
		case <-changed:
		case <-r.closing.Done():
			return nil, unavailable("the runtime is closing")
		case <-ctx.Done():
			return nil, callError(ctx.Err())
		}
	}
}

// mergeLocked takes in what a shim or a journal says of a container and tells whether that is news.
func (c *container) mergeLocked(rec shimwire.Container) bool {
	if rec.Phase < c.state.Phase || c.state.Phase == shimwire.Exited { // Late or twice.
		return false
	}
	news := rec.Phase > c.state.Phase
	c.state = rec
	if rec.Phase == shimwire.Exited {
		close(c.exited)
	}
	return news
}

// enterLocked makes a container known, dropLocked unknown.
func (r *Runtime) enterLocked(c *container) {
	r.containers[c.id] = c
	c.sb.containers[c.id] = c
}

func (r *Runtime) dropLocked(c *container) {
	delete(r.containers, c.id)
	delete(c.sb.containers, c.id)
}

func newID() (id string, random uint64) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // It never fails.
	for _, c := range b[:8] {
		random = random<<8 | uint64(c)
	}
	return hex.EncodeToString(b[:]), random
}

func now() int64 { return time.Now().UnixNano() }
