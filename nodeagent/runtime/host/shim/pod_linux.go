package shim

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Names inside the pod's directory, which is the shim's working directory.
const (
	SocketName = "sock" // Where later runtimes connect.
	RecordName = "shim" // A shimwire.HelloReply with pid and start time, as a journal.
	LogName    = "shim.log"
	StateName  = "state" // A container's journal, in containers/ID.
	Containers = "containers"
)

// pod is all that the shim knows.
type pod struct {
	id     string
	bootID string
	born   int64
	marker sys.Marker

	defaultScore int  // oom_score_adj of containers that ask for none.
	anyScore     bool // The shim may lower scores.

	mounts *os.File // A mount namespace with what containers share; nil for none. Set by init.
	init1  int      // The process 1 that containers share; 0 for none. Set by init.
	users  *os.File // The pod's user namespace; nil for none. Set by init.

	noView string // Why no view can be made; empty where that is not known to be so. Set by init.

	// main runs what must happen on the main thread: forks, because a child's parent-death signal is tied to the
	// thread that forked it, and only the main one lasts as long as the process.
	main chan func()
	// forked has a token when a child may have appeared since the reaper last saw none.
	forked chan struct{}
	reaps  atomic.Uint64

	mu sync.Mutex
	// Invariant: mu is held from before a fork until its pid is in children, and while a pid is reaped and taken out,
	// so that a pid in children is never another's.
	children   map[int]*child
	containers map[string]*container
	forgotten  map[string]struct{} // IDs that must not be started again.
	started    uint64
	closing    bool
	conns      map[*conn]struct{}
	watching   bool          // Whether watch runs.
	calls      int           // How many are to be answered, Shutdown apart.
	idle       chan struct{} // Closed when calls becomes 0; nil while nobody waits for that.
	toldNoView bool          // A container has warned of what it has not got without a view.
}

// child is a process that this shim forked and has not reaped.
type child struct {
	c     *container
	first bool // It is process 1 of c, not an Exec.
	// terminal says that its standard input is to be its controlling terminal.
	terminal bool
	// ended is called once, without mu, after the process was reaped.
	ended func(syscall.WaitStatus)
	// console is the terminal of an Exec that made its own, kept open until that has ended.
	console *os.File
}

// run is the shim's whole life.
func run() int {
	if err := prepare(); err != nil {
		complain("cannot start", err)
		return 1
	}
	p := &pod{
		main:       make(chan func()),
		forked:     make(chan struct{}, 1),
		children:   map[int]*child{},
		containers: map[string]*container{},
		forgotten:  map[string]struct{}{},
		conns:      map[*conn]struct{}{},
	}
	if self, err := sys.Stat(os.Getpid()); err == nil {
		p.born = int64(self.Start)
	}
	go p.reap()
	go p.serveFirst()
	for f := range p.main {
		f()
	}
	return 0
}

// onMain runs f on the main thread and waits for it.
func (p *pod) onMain(f func()) {
	done := make(chan struct{})
	p.main <- func() {
		f()
		close(done)
	}
	<-done
}

// init takes the first call and makes the pod known to runtimes to come.
func (p *pod) init(req *shimwire.InitRequest) error {
	noView := req.NoView
	owner := ""
	if len(req.UIDs) > 0 {
		if err := p.ownUsers(req); err != nil {
			return err
		}
		owner = ownerOptions(req)
	} else {
		p.onMain(func() {
			if noView == "" {
				noView = ownHostname(req.Hostname)
			}
			dropAmbient()
			if noView == "" {
				noView = ownNamespaces(req)
			}
		})
	}
	if req.OwnIPC && noView == "" {
		var err error
		if p.mounts, err = holdMounts(owner); err != nil {
			return err
		}
	}
	if req.SharePID && noView == "" && p.init1 == 0 {
		var err error
		if p.init1, err = p.bearInit(); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id, p.bootID, p.marker = req.SandboxID, req.BootID, sys.Marker(req.Marker)
	p.defaultScore, p.anyScore = protect()
	p.noView = noView
	if err := sys.SetMarker(p.marker); err != nil {
		complain("processes of this pod cannot be marked", err)
	}
	err := shimwire.Append(RecordName, p.helloLocked().Encode(), false)
	if err == nil {
		err = p.listen()
	}
	if err != nil {
		p.id = "" // Of no use: it ends with its first connection.
	}
	return err
}

func (p *pod) helloLocked() *shimwire.HelloReply {
	h := &shimwire.HelloReply{Version: shimwire.Version, SandboxID: p.id, BootID: p.bootID, PID: int64(os.Getpid()),
		Born: p.born, NoView: p.noView, Init: int64(p.init1)}
	if p.users != nil {
		h.Users = int64(p.users.Fd())
	}
	for _, c := range p.containers {
		h.Containers = append(h.Containers, c.recordLocked())
	}
	return h
}

// broadcast tells every runtime that is connected what has become of c.
func (p *pod) broadcast(c *container) {
	p.mu.Lock()
	rec := c.recordLocked()
	body := rec.Encode()
	for cn := range p.conns {
		cn.post(shimwire.Frame{Type: shimwire.Event, Body: body})
	}
	p.mu.Unlock()
}

// shutdown ends everything in the pod. After it nothing can be started, and nothing that descends from the shim runs.
func (p *pod) shutdown() {
	p.mu.Lock()
	p.closing = true
	var all []*container
	for _, c := range p.containers {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		go p.stop(c, &shimwire.StopRequest{}, nil)
	}
	for _, c := range all {
		<-c.done
	}
	// What is left belongs to no container: it has changed its marker.
	var pause sys.Pause
	for {
		kids, err := sys.Children(os.Getpid())
		if err == nil && len(kids) == 0 {
			return
		}
		all, _ := sys.Descendants(kids) // Whatever was missed is looked for again.
		for _, d := range all {
			_ = sys.Signal(d, syscall.SIGKILL)
		}
		pause.Wait()
	}
}

// complain writes to shim.log.
func complain(what string, err error) {
	_, _ = os.Stderr.WriteString(what + ": " + err.Error() + "\n")
}
