package shim

import (
	"errors"
	"os"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// lastWords is how long a shim that is done tries to say so.
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
		return
	}
	// The last words: written here, because the process ends with them. Nobody has to listen.
	_ = cn.file.SetWriteDeadline(time.Now().Add(lastWords))
	_, _ = cn.file.Write(shimwire.AppendFrame(nil, reply))
	os.Exit(0)
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
	p.stop(c, time.Duration(req.Timeout), cn.gone)
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
