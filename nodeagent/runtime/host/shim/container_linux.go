package shim

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/crilog"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// container is one container that was asked to start. Package wire draws its phases.
type container struct {
	req    shimwire.StartRequest
	group  sys.Cgroup
	marker sys.Marker

	log     *crilog.Log
	input   *os.File   // Where its standard input is written to; nil when that is a terminal or /dev/null.
	outputs []*os.File // The ends of the pipes that are read from; with a terminal the one end of that.
	peer    *os.File   // The container's end of its terminal; see openTerminal.
	view    *os.File   // Its mount namespace; nil when it has that of the machine.
	copies  sync.WaitGroup
	// watchers are those who get its output beside the log: stdout, stderr.
	watchers [2]watchers

	begun chan struct{} // Closed when the start has succeeded or failed, and that is recorded.
	dead  chan struct{} // Closed when process 1 was reaped.
	done  chan struct{} // Closed when the phase is Exited.
	swept atomic.Bool   // What is in the container is being ended.

	checkpointing atomic.Bool   // A checkpoint is being made.
	stopping      chan struct{} // Closed when the container was first asked to end, while mu was held.

	// Guarded by pod.mu.
	rec      shimwire.Container
	deadline time.Time // When everything is killed; zero while no stop was asked for.
	timer    *time.Timer
	signaled int64           // When the stop signal was sent, by the boot clock; 0 while it was not.
	asker    <-chan struct{} // Closed when the runtime that asked for the stop is gone.
}

func (c *container) recordLocked() shimwire.Container {
	rec := c.rec
	if c.log != nil && c.log.Dropped() > 0 {
		rec.Warnings = append(rec.Warnings[:len(rec.Warnings):len(rec.Warnings)],
			"output was lost: the log file could not be written")
	}
	return rec
}

func (c *container) journal() string {
	return Containers + "/" + c.req.ContainerID + "/" + StateName
}

// start starts the container that req describes, unless its ID was ever started: then it returns what became of it.
func (p *pod) start(req *shimwire.StartRequest) (shimwire.Container, error) {
	p.mu.Lock()
	if c, ok := p.containers[req.ContainerID]; ok {
		p.mu.Unlock()
		<-c.begun
		return p.outcome(c)
	}
	if err := p.mayStartLocked(req.ContainerID); err != nil {
		p.mu.Unlock()
		return shimwire.Container{}, err
	}
	p.started++
	c := &container{
		req:    *req,
		group:  sys.Cgroup{Unified: req.Unified, V1: req.V1},
		marker: p.marker.Container(p.started),
		begun:  make(chan struct{}),
		dead:   make(chan struct{}),
		done:   make(chan struct{}),

		stopping: make(chan struct{}),

		rec: shimwire.Container{ID: req.ContainerID, Phase: shimwire.Starting},
	}
	p.containers[req.ContainerID] = c
	intent := c.rec
	p.mu.Unlock()

	err := shimwire.Append(c.journal(), intent.Encode(), false)
	if err == nil {
		err = p.launch(c)
	}
	if err != nil {
		p.startFailed(c, err)
	}
	close(c.begun)
	p.broadcast(c)
	return p.outcome(c)
}

func (p *pod) mayStartLocked(id string) error {
	if p.closing {
		return errors.New("the sandbox is being stopped")
	}
	if _, ok := p.forgotten[id]; ok {
		return errors.New("the container was removed")
	}
	if id == "" || sys.Index(id, "/") >= 0 {
		return errors.New("invalid container ID")
	}
	return nil
}

// outcome answers a start that has begun.
func (p *pod) outcome(c *container) (shimwire.Container, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.rec.Reason == shimwire.ReasonStartError {
		return shimwire.Container{}, errors.New(c.rec.Message)
	}
	return c.recordLocked(), nil
}

func (p *pod) startFailed(c *container, err error) {
	if c.log != nil {
		_ = c.log.Close()
	}
	_ = c.group.Remove()
	now := time.Now().UnixNano()
	p.mu.Lock()
	c.rec.Phase, c.rec.ExitCode = shimwire.Exited, shimwire.CodeNotStarted
	c.rec.Reason, c.rec.Message = shimwire.ReasonStartError, err.Error()
	c.rec.StartedAt, c.rec.FinishedAt = now, now
	rec := c.rec
	p.mu.Unlock()
	if err := shimwire.Append(c.journal(), rec.Encode(), false); err != nil {
		complain("a failed start could not be recorded", err)
		go keepTrying(c.journal(), rec)
	}
	close(c.dead)
	close(c.done)
}

// launch opens the log and starts process 1.
func (p *pod) launch(c *container) error {
	var err error
	if c.log, err = crilog.Open(c.req.LogPath); err != nil {
		return errors.New("cannot open the log file: " + err.Error())
	}
	std, err := c.openStd()
	if err != nil {
		return err
	}
	pid, err := p.bear(c, std)
	std.close()
	if err != nil {
		c.closeStd()
		return err
	}
	for i, from := range c.outputs {
		stream := [...]string{"stdout", "stderr"}[i]
		c.copies.Add(1)
		go func() {
			defer c.copies.Done()
			// It fails when the deadline of finish cuts it off, and at the end of a terminal.
			_ = c.log.Copy(stream, watched{from, &c.watchers[i]})
		}()
	}
	now := time.Now().UnixNano()
	born := bornOf(pid)
	p.mu.Lock()
	c.rec.PID, c.rec.Born, c.rec.StartedAt = int64(pid), born, now
	if end := c.rec.FinishedAt; end != 0 {
		c.rec.StartedAt = min(now, end) // It was over before the clock was read.
	}
	if c.req.HasView() && p.children[pid] != nil {
		// While the child is not reaped its pid is its own. If it has ended, nobody will ask for its view.
		c.view, _ = os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	}
	if c.rec.Phase == shimwire.Starting {
		c.rec.Phase = shimwire.Running
	}
	rec := c.rec
	rec.Phase = shimwire.Running
	p.mu.Unlock()
	if err := shimwire.Append(c.journal(), rec.Encode(), false); err != nil {
		complain("a start could not be recorded", err) // The intent is, which is what matters.
	}
	return nil
}

// bornOf reads the start time of a child. Only a system without a free descriptor makes that fail, for a moment.
func bornOf(pid int) int64 {
	var pause sys.Pause
	for range 10 {
		self, err := sys.Stat(pid)
		if err == nil {
			return int64(self.Start)
		}
		if sys.Gone(err) {
			break // It was reaped already.
		}
		pause.Wait()
	}
	return 0
}

// firstEnded notes how process 1 ended and begins the end of the rest.
func (p *pod) firstEnded(c *container, ws syscall.WaitStatus) {
	p.mu.Lock()
	c.rec.Phase = shimwire.Ending
	c.rec.FinishedAt = time.Now().UnixNano()
	if ws.Signaled() {
		c.rec.Signal = int64(ws.Signal())
		c.rec.ExitCode = 128 + c.rec.Signal
	} else {
		c.rec.ExitCode = int64(ws.ExitStatus())
	}
	p.mu.Unlock()
	close(c.dead)
	p.sweep(c)
}

// reopen rotates the log.
func (p *pod) reopen(id string) error {
	c, err := p.find(id)
	if err != nil {
		return err
	}
	<-c.begun
	select {
	case <-c.done:
		return errors.New("the container is not running")
	default:
	}
	return c.log.Reopen()
}

// forget drops an exited container.
func (p *pod) forget(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.containers[id]; ok {
		if c.rec.Phase != shimwire.Exited {
			return errors.New("the container is running")
		}
		delete(p.containers, id)
	}
	p.forgotten[id] = struct{}{}
	return nil
}

func (p *pod) find(id string) (*container, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.containers[id]; ok {
		return c, nil
	}
	return nil, errors.New("the container was not started")
}
