package upgrade

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	corev1 "monoplane.dev/api/core/v1"
)

// MaxPorts is how many ports a client can name that forwards them over the channels of a WebSocket.
const MaxPorts = 127

// WithPorts says whether a request to forward ports names them itself, and has two channels of a WebSocket for each:
// the data, and what went wrong. Clients in Python, JavaScript and Rust do so. Each port is one connection, which is
// opened at once; the others have a connection for each connection that is made to them, through a tunnel.
func WithPorts(r *http.Request) bool {
	return IsWebSocket(r) && !slices.Contains(websocket.Subprotocols(r), tunnelProtocol)
}

// ForwardPorts connects the client with the ports of a pod, of which there are MaxPorts at most, over a WebSocket. It
// returns when all of them or the client have ended, or ctx has.
func ForwardPorts(ctx context.Context, w http.ResponseWriter, r *http.Request, pod string, ports []int32, dial Dial) {
	u := websocket.Upgrader{
		Subprotocols: []string{socketV4, socketV4Base64}, WriteBufferSize: piece + 1, ReadBufferSize: piece,
		CheckOrigin: anyOrigin,
	}
	conn, err := u.Upgrade(w, r, nil)
	if err != nil {
		return // It has answered.
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &portSocket{channels: newChannels(conn), pod: pod, inputs: make([]chan []byte, len(ports))}
	p.idle = time.AfterFunc(IdleTimeout, func() { cancel(errIdle) })
	defer p.idle.Stop()
	defer closeAfter(ctx, conn.NetConn())()
	defer watchPeer(conn.NetConn(), goneAfter, cancel)()
	var running, hearing sync.WaitGroup
	for i, port := range ports {
		in := make(chan []byte)
		p.inputs[i] = in
		running.Go(func() {
			s, err := p.open(ctx, i, port, dial)
			hearing.Go(func() { pass(in, s) })
			p.receive(ctx, i, port, s, err)
		})
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.read()
		cancel(io.EOF) // The client has gone.
	}()
	running.Wait()
	p.bye(closed)
	hearing.Wait()
}

// portSocket is a WebSocket with two channels for each port.
type portSocket struct {
	channels
	pod  string
	idle *time.Timer
	// inputs have what the client sends to each port. They are closed when it sends nothing more.
	inputs []chan []byte

	writing sync.Mutex
}

// say sends on a channel, whoever else does so.
func (p *portSocket) say(channel int, data []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.idle.Reset(IdleTimeout)
	return p.send(byte(channel), data)
}

// read passes on what the client sends, until it has closed its end.
func (p *portSocket) read() {
	defer func() {
		for _, in := range p.inputs {
			close(in)
		}
	}()
	for {
		channel, message, err := p.next()
		if err != nil {
			return
		}
		p.idle.Reset(IdleTimeout)
		port := int(channel) / 2
		for err == nil && channel%2 == 0 && port < len(p.inputs) {
			var n int
			data := make([]byte, piece)
			if n, err = io.ReadFull(message, data); n > 0 {
				p.inputs[port] <- data[:n:n]
			}
		}
	}
}

// open opens the connection to a port. The number of the port is the first that is said on both of its channels.
func (p *portSocket) open(ctx context.Context, i int, port int32, dial Dial) (Stream, error) {
	number := binary.LittleEndian.AppendUint16(nil, uint16(port))
	if err := errors.Join(p.say(2*i, number), p.say(2*i+1, number)); err != nil {
		return nil, err
	}
	s, err := dial(ctx, port)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// receive passes on what a port says, until it has said all, or why it cannot.
func (p *portSocket) receive(ctx context.Context, i int, port int32, s Stream, err error) {
	if err == nil {
		err = receive(writerTo(func(b []byte) error { return p.say(2*i, b) }), s)
		s.Close()
	}
	if err != nil && ctx.Err() == nil {
		_ = p.say(2*i+1, fmt.Appendf(nil, "error forwarding port %d to pod %s: %v", port, p.pod, err))
	}
}

// pass hands what the client sends to a port, which may be nil, and drops what it does not take: other ports wait for
// their turn.
func pass(from <-chan []byte, to Stream) {
	for data := range from {
		if to != nil && to.Send(&corev1.StreamInput{Data: data}) != nil {
			to = nil
		}
	}
	if to != nil {
		_ = to.Send(&corev1.StreamInput{End: true})
	}
}

// writerTo is a function as a writer.
type writerTo func([]byte) error

// Write implements io.Writer.
func (f writerTo) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}
