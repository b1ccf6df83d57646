package shim

import (
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// lastWords is how long a shim that is done tries to say so, and before that to answer what else it was asked.
const lastWords = time.Second

// handle answers one call.
func (p *pod) handle(cn *conn, f shimwire.Frame, fds []int) {
	files := make([]*os.File, 0, len(fds))
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "passed"))
	}
	body := p.answer(cn, f, files)
	for _, file := range files {
		file.Close()
	}
	reply := shimwire.Frame{Call: f.Call, Type: shimwire.Reply, Body: body}
	if f.Type != shimwire.Shutdown {
		cn.post(reply)
		p.answered()
		return
	}
	p.settle()
	// The last words: written here, because the process ends with them. Nobody has to listen.
	_ = cn.file.SetWriteDeadline(time.Now().Add(lastWords))
	_, _ = cn.file.Write(shimwire.AppendFrame(nil, reply))
	os.Exit(0)
}

// begin counts a call that is to be answered.
func (p *pod) begin() {
	p.mu.Lock()
	p.calls++
	p.mu.Unlock()
}

// answered is said of a call whose answer has been posted.
func (p *pod) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls--
	if p.calls == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// settle waits until the other calls have their answers: with the containers, what people have attached to and what
// they run there has ended, and they are to be told so instead of losing the connection. What does not end is not
// waited for.
func (p *pod) settle() {
	end := time.After(lastWords)
	p.mu.Lock()
	if p.calls > 0 && p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-end:
			return
		}
	}
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, cn := range conns {
		cn.flush(end)
	}
}

func (p *pod) answer(cn *conn, f shimwire.Frame, files []*os.File) []byte {
	switch f.Type {
	case shimwire.Init:
		var req shimwire.InitRequest
		err := req.Decode(f.Body)
		if err == nil {
			err = p.init(&req)
		}
		return p.hello(err)
	case shimwire.Hello:
		return p.hello(nil)
	case shimwire.Start:
		var req shimwire.StartRequest
		if err := req.Decode(f.Body); err != nil {
			return failure(err)
		}
		rec, err := p.start(&req)
		return record(rec, err)
	case shimwire.Stop:
		return p.answerStop(cn, f.Body)
	case shimwire.Reopen:
		return p.simple(f.Body, p.reopen)
	case shimwire.Forget:
		return p.simple(f.Body, p.forget)
	case shimwire.Exec:
		reply := p.answerExec(cn, f.Body, files)
		return reply.Encode()
	case shimwire.Checkpoint:
		var req shimwire.CheckpointRequest
		reply := shimwire.ExecReply{}
		if err := req.Decode(f.Body); err != nil {
			reply.Error = err.Error()
		} else {
			reply = p.checkpoint(&req, cn.gone)
		}
		return reply.Encode()
	case shimwire.Attach:
		var req shimwire.AttachRequest
		err := req.Decode(f.Body)
		if err == nil {
			err = p.attach(&req, files, cn.gone)
		}
		return record(shimwire.Container{ID: req.ContainerID}, err)
	case shimwire.Resize:
		var req shimwire.ResizeRequest
		err := req.Decode(f.Body)
		if err == nil {
			err = p.resize(&req)
		}
		return record(shimwire.Container{ID: req.ContainerID}, err)
	case shimwire.Shutdown:
		p.shutdown()
		return nil
	}
	return failure(errors.New("this shim is older than the call"))
}

func (p *pod) hello(err error) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.helloLocked()
	if err != nil {
		h.Error = err.Error()
	}
	return h.Encode()
}

func (p *pod) answerExec(cn *conn, body []byte, passed []*os.File) shimwire.ExecReply {
	var req shimwire.ExecRequest
	err := req.Decode(body)
	var files std
	if err == nil {
		files, err = execFiles(passed, req.Console)
	}
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	defer files.close()
	return p.exec(&req, files, cn.gone)
}

func (p *pod) answerStop(cn *conn, body []byte) []byte {
	var req shimwire.StopRequest
	if err := req.Decode(body); err != nil {
		return failure(err)
	}
	c, err := p.find(req.ContainerID)
	if err != nil {
		return failure(err)
	}
	p.stop(c, &req, cn.gone)
	p.mu.Lock()
	defer p.mu.Unlock()
	return record(c.recordLocked(), nil)
}

func (p *pod) simple(body []byte, do func(id string) error) []byte {
	var req shimwire.ContainerRequest
	err := req.Decode(body)
	if err == nil {
		err = do(req.ContainerID)
	}
	return record(shimwire.Container{ID: req.ContainerID}, err)
}

func record(rec shimwire.Container, err error) []byte {
	if err != nil {
		return failure(err)
	}
	return rec.Encode()
}

func failure(err error) []byte {
	c := shimwire.Container{Error: err.Error()}
	return c.Encode()
}
