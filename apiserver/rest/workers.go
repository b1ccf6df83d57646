package rest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// workers are goroutines that serve one request after the other. HTTP/2 starts a goroutine for every request, with
// a small stack that has to be moved, several times, on the long way through middleware, gateway and service;
// stacks that have grown once save 5 % of a GET. They end with ctx.
type workers struct {
	ctx   context.Context
	serve func(http.ResponseWriter, *http.Request)
	jobs  chan *job
	idle  atomic.Int32
	pool  sync.Pool // of *job
}

// maxIdle is how many workers wait for requests.
const maxIdle = 64

// job is one request at a worker.
type job struct {
	w http.ResponseWriter
	r *http.Request
	// done gets what the worker's code has panicked with, or nil.
	done chan any
}

func newWorkers(ctx context.Context, serve func(http.ResponseWriter, *http.Request)) *workers {
	p := &workers{ctx: ctx, serve: serve, jobs: make(chan *job)}
	p.pool.New = func() any { return &job{done: make(chan any, 1)} }
	return p
}

// run serves a request and returns when it has been served. It panics with what serve panics with.
func (p *workers) run(w http.ResponseWriter, r *http.Request) {
	j := p.pool.Get().(*job)
	j.w, j.r = w, r
	select {
	case p.jobs <- j:
	default:
		go p.work(j)
	}
	v := <-j.done
	p.pool.Put(j)
	if v != nil {
		panic(v)
	}
}

func (p *workers) work(j *job) {
	for {
		p.one(j)
		if p.idle.Add(1) > maxIdle {
			p.idle.Add(-1)
			return
		}
		select {
		case j = <-p.jobs:
			p.idle.Add(-1)
		case <-p.ctx.Done():
			p.idle.Add(-1)
			return
		}
	}
}

func (p *workers) one(j *job) {
	defer func() {
		v := recover()
		j.w, j.r = nil, nil
		j.done <- v
	}()
	p.serve(j.w, j.r)
}

// lasting says whether a request is for a stream, which a worker would serve for so long that the size of its
// stack does not matter.
func lasting(r *http.Request) bool {
	return strings.Contains(r.URL.RawQuery, "watch=") || strings.Contains(r.URL.RawQuery, "follow=") ||
		strings.Contains(r.URL.Path, "/watch/")
}
