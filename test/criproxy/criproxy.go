// Package criproxy stands before the socket of a real container runtime and, when it is told to, lets it look like one
// that is slow, hangs, dies under a call, says that it has failed when it has not, does things twice, or tells what
// was so a while ago. What it does pass on is carried out by the runtime as it was asked for.
//
//	p, err := criproxy.New(socket, runtime.Endpoint())
//	p.Disturb(criproxy.AtRandom(random))
//	... use p.Endpoint() ...
//	p.Mend()          // what hangs is cut off, and from now on nothing stands between
//	err = p.Close()
//
// It guarantees that no call hangs beyond Mend. It does not pass on events: a client of it must look by itself.
package criproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Fault is what becomes of one call.
type Fault string

// The faults. Those with Done carry the call out first.
const (
	// None passes the call on, and its answer back.
	None Fault = ""
	// Slow does so after a while.
	Slow Fault = "slow"
	// Mute never answers.
	Mute Fault = "mute"
	// DoneMute never answers either.
	DoneMute Fault = "done, mute"
	// Refused answers with an error.
	Refused Fault = "refused"
	// DoneRefused says that it has failed.
	DoneRefused Fault = "done, refused"
	// Twice carries the call out twice, and answers as the second time went.
	Twice Fault = "twice"
	// Dropped breaks the connection.
	Dropped Fault = "dropped"
	// DoneDropped breaks it instead of an answer.
	DoneDropped Fault = "done, dropped"
	// Stale answers as the same call was answered some time ago.
	Stale Fault = "stale"
)

// Proxy is one such socket. Use New.
type Proxy struct {
	socket  string
	server  *grpc.Server
	runtime *grpc.ClientConn
	served  chan error

	mu sync.Mutex
	// fault chooses what becomes of a call; nil for None.
	fault func(method string) Fault
	// mended is closed when nothing may hang any more.
	mended chan struct{}
	conns  map[net.Conn]struct{}
	// said are earlier answers to calls, by method and request.
	said map[string][]byte
	// count says how often which fault happened.
	count map[Fault]int
}

// New serves at a socket what a runtime serves at an endpoint.
func New(socket, endpoint string) (*Proxy, error) {
	runtime, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(err, runtime.Close())
	}
	p := &Proxy{socket: socket, runtime: runtime, served: make(chan error, 1), mended: make(chan struct{}),
		conns: make(map[net.Conn]struct{}), said: make(map[string][]byte), count: make(map[Fault]int)}
	p.server = grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(p.serve))
	go func() { p.served <- p.server.Serve(&listener{l, p}) }()
	return p, nil
}

// Endpoint is where it serves.
func (p *Proxy) Endpoint() string { return "unix://" + p.socket }

// Disturb lets fault choose what becomes of every call from now on; it is told the method's name, such as
// StartContainer. It is called for one call at a time.
func (p *Proxy) Disturb(fault func(method string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.mended = fault, make(chan struct{})
}

// Mend ends all faults, and breaks the connections of calls that hang.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		p.fault = nil
		close(p.mended)
	}
}

// Count says how often which fault has happened.
func (p *Proxy) Count() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.count)
}

// Close ends the proxy. The runtime goes on.
func (p *Proxy) Close() error {
	p.Mend()
	p.server.Stop()
	return errors.Join(<-p.served, p.runtime.Close())
}

// serve answers one call.
func (p *Proxy) serve(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method := path.Base(full)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if method == "GetContainerEvents" {
		return status.Error(codes.Unimplemented, "there are no events here")
	}
	answer, err := p.answer(stream.Context(), full, request)
	if err != nil {
		return err
	}
	return stream.SendMsg(&answer)
}

func (p *Proxy) answer(ctx context.Context, method string, request []byte) ([]byte, error) {
	fault, mended, before := p.choose(method, request)
	switch fault {
	case Slow:
		wait(ctx, mended, slowness)
	case Mute:
		return nil, p.hang(ctx, mended)
	case Refused:
		return nil, status.Error(codes.Unknown, "it does not work today")
	case Dropped:
		p.drop()
		return nil, status.Error(codes.Unavailable, "the connection is gone")
	case Stale:
		return before, nil
	}
	answer, err := p.ask(ctx, fault, method, request)
	if fault == Twice {
		answer, err = p.ask(ctx, fault, method, request)
	}
	switch fault {
	case DoneMute:
		return nil, p.hang(ctx, mended)
	case DoneRefused:
		return nil, status.Error(codes.Unknown, "it did not work")
	case DoneDropped:
		p.drop()
		return nil, status.Error(codes.Unavailable, "the connection is gone")
	}
	return answer, err
}

// slowness is how long a call waits that is Slow.
const slowness = 1500 * time.Millisecond

// choose says what becomes of a call, until when it may hang, and what was answered to the same before.
func (p *Proxy) choose(method string, request []byte) (Fault, <-chan struct{}, []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := None
	if p.fault != nil {
		fault = p.fault(path.Base(method))
	}
	before, known := p.said[method+string(request)]
	if fault == Stale && !known {
		fault = None
	}
	if fault != None {
		p.count[fault]++
	}
	return fault, p.mended, before
}

// patience bounds a call that is carried out for a client that does not wait for it.
const patience = time.Minute

// ask asks the runtime. What is Done is done whatever becomes of the client.
func (p *Proxy) ask(ctx context.Context, fault Fault, method string, request []byte) ([]byte, error) {
	if fault != None {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	var answer []byte
	err := p.runtime.Invoke(ctx, method, &request, &answer)
	if err == nil && strings.HasPrefix(path.Base(method), "List") {
		p.remember(method+string(request), answer)
	}
	return answer, err
}

// remember keeps an answer that may be given again, one call later at the earliest.
func (p *Proxy) remember(call string, answer []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil || len(p.said[call]) == 0 {
		p.said[call] = answer
	}
}

// hang waits until the client goes, or all is mended, and breaks the connection then.
func (p *Proxy) hang(ctx context.Context, mended <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-mended:
		p.drop()
		return status.Error(codes.Unavailable, "the connection is gone")
	}
}

func wait(ctx context.Context, mended <-chan struct{}, d time.Duration) {
	select {
	case <-time.After(d):
	case <-mended:
	case <-ctx.Done():
	}
}

// drop breaks all connections.
func (p *Proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // the other side may have been faster
	}
}

// listener knows its connections.
type listener struct {
	net.Listener
	p *Proxy
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.conns[c] = struct{}{}
	return &conn{c, l.p}, nil
}

type conn struct {
	net.Conn
	p *Proxy
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c.Conn)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// raw passes messages on as they are.
type raw struct{}

// Marshal implements encoding.Codec.
func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("bytes were expected, not %T", v)
	}
	return *b, nil
}

// Unmarshal implements encoding.Codec.
func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("bytes were expected, not %T", v)
	}
	*b = append([]byte(nil), data...)
	return nil
}

// Name implements encoding.Codec.
func (raw) Name() string { return "proto" }
