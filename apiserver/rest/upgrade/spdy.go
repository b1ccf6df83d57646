package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Wanted says which streams a client creates for a command.
type Wanted struct{ Stdin, Stdout, Stderr, TTY bool }

// The protocols of a command over SPDY, and the first that can resize, and that says in a Status how it went.
const (
	protocolV4 = "v4.channel.k8s.io"
	protocolV3 = "v3.channel.k8s.io"
	protocolV2 = "v2.channel.k8s.io"
	protocolV1 = "channel.k8s.io"
)

// maxStreams bounds the streams that a client may create for a command.
const maxStreams = 8

// created is a stream of a client. It may be written to once the reply was sent.
type created struct {
	httpstream.Stream
	replied <-chan struct{}
}

var errTooMany = errors.New("too many streams")

// SPDY serves a command over SPDY until it or the client has ended, or ctx has.
func SPDY(ctx context.Context, w http.ResponseWriter, r *http.Request, wanted Wanted, s Stream) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.Close()
	protocol, err := httpstream.Handshake(r, w, []string{protocolV4, protocolV3, protocolV2, protocolV1})
	if err != nil {
		return // It has answered.
	}
	arriving := make(chan created, maxStreams)
	taken := &taker{ResponseWriter: w}
	arrived := func(s httpstream.Stream, replied <-chan struct{}) error {
		select {
		case arriving <- created{s, replied}:
			return nil
		default:
			return errTooMany
		}
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(framed{taken}, r, arrived)
	if conn == nil {
		return
	}
	defer conn.Close()
	conn.SetIdleTimeout(IdleTimeout)
	defer watchPeer(taken.conn, goneAfter, cancel)()
	go func() {
		select {
		case <-conn.CloseChan():
			cancel(nil)
		case <-ctx.Done():
		}
		s.Close()
		// What is being written to a client that does not read ends too.
		_ = taken.conn.SetDeadline(time.Now().Add(partingTime))
	}()
	streams := collect(ctx, arriving, expected(wanted, protocol))
	if streams == nil {
		return
	}
	c := &command{s: s, streams: streams}
	c.run(protocol)
	<-conn.CloseChan() // The client has everything; or it has gone, does nothing any more, or the server stops.
}

// expected are the types of the streams that the client creates.
func expected(w Wanted, protocol string) []string {
	list := []string{"error"}
	if w.Stdin {
		list = append(list, "stdin")
	}
	if w.Stdout {
		list = append(list, "stdout")
	}
	if w.Stderr && !w.TTY {
		list = append(list, "stderr")
	}
	if w.TTY && (protocol == protocolV4 || protocol == protocolV3) {
		list = append(list, "resize")
	}
	return list
}

// collect waits for the streams; it returns nil when they do not come.
func collect(ctx context.Context, arriving <-chan created, kinds []string) map[string]httpstream.Stream {
	timer := time.NewTimer(creationTime)
	defer timer.Stop()
	streams := make(map[string]httpstream.Stream, len(kinds))
	for len(streams) < len(kinds) {
		select {
		case s := <-arriving:
			select {
			case <-s.replied:
			case <-ctx.Done():
				return nil
			}
			kind := s.Headers().Get("streamType")
			if streams[kind] != nil || !slices.Contains(kinds, kind) {
				return nil
			}
			streams[kind] = s.Stream
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return streams
}

// command is one that is talked with over SPDY.
type command struct {
	s       Stream
	streams map[string]httpstream.Stream
	sending sync.Mutex
}

func (c *command) run(protocol string) {
	if in := c.streams["stdin"]; in != nil {
		go c.input(in)
	}
	if resize := c.streams["resize"]; resize != nil {
		go c.resize(resize)
	}
	status := c.output()
	switch {
	case protocol == protocolV4:
		_, _ = c.streams["error"].Write(encodeStatus(status))
	case status.GetStatus() != "Success":
		_, _ = io.WriteString(c.streams["error"], status.GetMessage())
	}
	for _, s := range c.streams {
		_ = s.Close()
	}
}

func (c *command) send(in *corev1.StreamInput) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.s.Send(in)
}

func (c *command) input(from io.Reader) {
	over := false
	for {
		data := make([]byte, piece)
		n, err := from.Read(data)
		if n > 0 && !over {
			over = c.send(&corev1.StreamInput{Data: data[:n:n]}) != nil
		}
		if err != nil {
			if !over && errors.Is(err, io.EOF) {
				_ = c.send(&corev1.StreamInput{End: true})
			}
			return
		}
	}
}

func (c *command) resize(from io.Reader) {
	decoder := json.NewDecoder(from)
	for {
		in, err := readSize(decoder)
		if err != nil || c.send(in) != nil {
			_, _ = io.Copy(io.Discard, from)
			return
		}
	}
}

// output passes on what comes out, and returns how it went.
func (c *command) output() *metav1.Status {
	for {
		out, err := c.s.Recv()
		if err != nil {
			return statusOf(err)
		}
		for _, x := range []struct {
			kind string
			data []byte
		}{{"stdout", out.GetData()}, {"stderr", out.GetErrors()}} {
			if to := c.streams[x.kind]; to != nil && len(x.data) > 0 {
				if _, err := to.Write(x.data); err != nil {
					return statusOf(err)
				}
			}
		}
		if out.GetStatus() != nil {
			return out.GetStatus()
		}
	}
}
