package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	forwardProtocol = "portforward.k8s.io"
	tunnelProtocol  = "SPDY/3.1+" + forwardProtocol
	// maxForwards bounds the connections that one client may forward at a time.
	maxForwards = 512
)

// Dial opens a connection to a port of the pod.
type Dial func(ctx context.Context, port int32) (Stream, error)

// Forward serves forwarded connections over SPDY, or over SPDY in a WebSocket, until the client has ended or ctx has.
func Forward(ctx context.Context, w http.ResponseWriter, r *http.Request, pod string, dial Dial) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &forwarder{ctx: ctx, pod: pod, dial: dial, waiting: map[string]*pair{}}
	defer f.running.Wait()
	defer cancel(nil)
	taken := &taker{ResponseWriter: w}
	conn := f.upgrade(taken, r)
	if conn == nil {
		return
	}
	defer conn.Close()
	// What is being written to a client that does not read would keep the connection from being closed.
	defer func() { _ = taken.conn.SetDeadline(time.Now()) }()
	conn.SetIdleTimeout(IdleTimeout)
	defer watchPeer(taken.conn, goneAfter, cancel)()
	select {
	case <-conn.CloseChan():
	case <-ctx.Done():
	}
	f.mu.Lock()
	f.closed = true // Nothing is begun from here on.
	f.mu.Unlock()
}

// forwarder pairs the streams of a client.
type forwarder struct {
	ctx  context.Context
	pod  string
	dial Dial

	running sync.WaitGroup
	mu      sync.Mutex
	waiting map[string]*pair // By the id that the client has chosen.
	busy    int
	closed  bool
}

// pair are the two streams of one connection: what is sent, and what went wrong.
type pair struct {
	port        int32
	data, errs  httpstream.Stream
	replied     []<-chan struct{}
	abandonment *time.Timer
}

func (f *forwarder) upgrade(w http.ResponseWriter, r *http.Request) httpstream.Connection {
	if !IsWebSocket(r) {
		if _, err := httpstream.Handshake(r, w, []string{forwardProtocol}); err != nil {
			return nil // It has answered.
		}
		return spdy.NewResponseUpgrader().UpgradeResponse(framed{w}, r, f.arrived)
	}
	u := websocket.Upgrader{
		Subprotocols: []string{tunnelProtocol}, WriteBufferSize: keptFrame, ReadBufferSize: piece, CheckOrigin: anyOrigin,
	}
	socket, err := u.Upgrade(w, r, nil)
	if err != nil {
		return nil // It has answered.
	}
	conn, err := spdy.NewServerConnection(&wholeFrames{Conn: &tunnel{conn: socket}}, f.arrived)
	if err != nil {
		return nil // It has closed the socket.
	}
	return conn
}

// arrived takes a stream that the client creates.
func (f *forwarder) arrived(s httpstream.Stream, replied <-chan struct{}) error {
	h := s.Headers()
	port, err := strconv.ParseUint(h.Get("port"), 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("port %q is not between 1 and 65535", h.Get("port"))
	}
	id, kind := h.Get("requestID"), h.Get("streamType")
	if id == "" || kind != "data" && kind != "error" {
		return fmt.Errorf("a stream of type %q with the requestID %q", kind, id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("the connection is being closed")
	}
	p := f.waiting[id]
	if p == nil {
		if f.busy >= maxForwards {
			return errTooMany
		}
		f.busy++
		p = &pair{port: int32(port)}
		p.abandonment = time.AfterFunc(creationTime, func() { f.abandon(id, p) })
		f.waiting[id] = p
	}
	if p.port != int32(port) || kind == "data" && p.data != nil || kind == "error" && p.errs != nil {
		return fmt.Errorf("two streams of type %q with the requestID %q", kind, id)
	}
	if kind == "data" {
		p.data = s
	} else {
		p.errs = s
	}
	p.replied = append(p.replied, replied)
	if p.data != nil && p.errs != nil {
		p.abandonment.Stop()
		delete(f.waiting, id)
		f.running.Go(func() { f.forward(p) })
	}
	return nil
}

// abandon gives up on a stream whose other one does not come.
func (f *forwarder) abandon(id string, p *pair) {
	f.mu.Lock()
	alone := f.waiting[id] == p
	if alone {
		delete(f.waiting, id)
		f.busy--
	}
	f.mu.Unlock()
	for _, s := range []httpstream.Stream{p.data, p.errs} {
		if alone && s != nil {
			_ = s.Reset()
		}
	}
}

// forward serves one connection.
func (f *forwarder) forward(p *pair) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	defer func() {
		f.mu.Lock()
		f.busy--
		f.mu.Unlock()
	}()
	for _, replied := range p.replied {
		select {
		case <-replied:
		case <-ctx.Done():
			return
		}
	}
	said := make(chan struct{})
	s, err := f.dial(ctx, p.port)
	if err != nil {
		s = nil
	}
	go func() {
		defer close(said)
		send(p.data, s)
	}()
	if err == nil {
		err = receive(p.data, s)
	}
	if err != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintf(p.errs, "error forwarding port %d to pod %s: %v", p.port, f.pod, err)
	}
	_ = p.errs.Close()
	_ = p.data.Close()
	cancel()
	// The rest is read: it would stand in the way of other streams, and a reset would take from the client what it has
	// not read yet.
	timer := time.NewTimer(partingTime)
	defer timer.Stop()
	select {
	case <-said:
		return
	case <-timer.C:
	case <-f.ctx.Done():
	}
	_ = p.data.Reset()
	<-said
}

// send passes on what the client sends, and drops what nobody takes. S may be nil.
func send(from io.Reader, s Stream) {
	for {
		data := make([]byte, piece)
		n, err := from.Read(data)
		if n > 0 && s != nil && s.Send(&corev1.StreamInput{Data: data[:n:n]}) != nil {
			s = nil
		}
		if err != nil {
			if s != nil && errors.Is(err, io.EOF) {
				_ = s.Send(&corev1.StreamInput{End: true})
			}
			return
		}
	}
}

// receive passes on what the port sends.
func receive(to io.Writer, s Stream) error {
	for {
		out, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(out.GetData()) > 0 {
			if _, err := to.Write(out.GetData()); err != nil {
				return err
			}
		}
		switch st := out.GetStatus(); {
		case st.GetStatus() == "Success":
			return nil
		case st != nil:
			return errors.New(st.GetMessage())
		}
	}
}

// tunnel is a connection through a WebSocket: its bytes are those of the messages, wherever these begin and end.
type tunnel struct {
	conn    *websocket.Conn
	message io.Reader
	closing sync.Once
	writing sync.Mutex
}

// Read implements net.Conn.
func (t *tunnel) Read(b []byte) (int, error) {
	for {
		if t.message == nil {
			kind, message, err := t.conn.NextReader()
			switch {
			case websocket.IsCloseError(err, websocket.CloseNormalClosure):
				return 0, io.EOF
			case err != nil:
				return 0, err
			case kind != websocket.BinaryMessage:
				return 0, errors.New("a message that is not binary")
			}
			t.message = message
		}
		n, err := t.message.Read(b)
		if errors.Is(err, io.EOF) {
			t.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (t *tunnel) Write(b []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if err := t.conn.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close implements net.Conn.
func (t *tunnel) Close() error {
	var err error
	t.closing.Do(func() {
		_ = t.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
			time.Now().Add(time.Second))
		err = t.conn.Close()
	})
	return err
}

// LocalAddr implements net.Conn.
func (t *tunnel) LocalAddr() net.Addr { return t.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (t *tunnel) RemoteAddr() net.Addr { return t.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (t *tunnel) SetDeadline(at time.Time) error { return t.conn.NetConn().SetDeadline(at) }

// SetReadDeadline implements net.Conn.
func (t *tunnel) SetReadDeadline(at time.Time) error { return t.conn.SetReadDeadline(at) }

// SetWriteDeadline implements net.Conn.
func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.conn.NetConn().SetWriteDeadline(at) }
