package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// The channels of a WebSocket: the first byte of each message.
const (
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	channelStatus = 3
	channelResize = 4
	channelClose  = 255 // Version 5: the channel that the next byte names has ended.
)

// maxControl bounds what is read of a message that is no input.
const maxControl = 1 << 10

// socket is a WebSocket over which a command is talked with.
type socket struct {
	channels
	s    Stream
	idle *time.Timer
}

// anyOrigin lets clients say that they come from any page, as kube-apiserver does: many that are no browsers say so.
// No cookie shows who a client is; who puts a client certificate into a browser lends it to every page, as there.
func anyOrigin(*http.Request) bool { return true }

// WebSocket serves a command over a WebSocket until it or the client has ended, or ctx has. Probe is ProbeAfter.
func WebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, s Stream, probe time.Duration) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.Close()
	u := websocket.Upgrader{
		Subprotocols: commandProtocols, WriteBufferSize: piece + 1, ReadBufferSize: 4 << 10, CheckOrigin: anyOrigin,
	}
	conn, err := u.Upgrade(w, r, nil)
	if err != nil {
		return // It has answered.
	}
	defer conn.Close()
	k := &socket{
		channels: newChannels(conn), s: s, idle: time.AfterFunc(IdleTimeout, func() { cancel(errIdle) }),
	}
	defer k.idle.Stop()
	defer closeAfter(ctx, conn.NetConn())()
	defer watchPeer(conn.NetConn(), goneAfter, cancel)()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		k.read()
		cancel(io.EOF) // The client has gone.
	}()
	probing, stopProbing := context.WithCancel(ctx)
	defer stopProbing()
	go k.probe(probing, cancel, probe)
	ended := make(chan *metav1.Status, 1)
	go func() { ended <- k.write() }()
	var status *metav1.Status
	select {
	case status = <-ended:
	case <-ctx.Done():
		s.Close()
		status = <-ended
		if cause := context.Cause(ctx); errors.Is(cause, errIdle) {
			status = statusOf(cause)
		}
	}
	s.Close()
	stopProbing() // Nothing may follow the word that all has been said.
	if text := k.parting(status); len(text) > 0 {
		_ = k.send(channelStatus, text)
	}
	k.bye(closed)
}

// probe writes to the client now and then, which fails when it has gone.
func (k *socket) probe(ctx context.Context, cancel context.CancelCauseFunc, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := k.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(every))
		var slow net.Error
		if err != nil && (!errors.As(err, &slow) || !slow.Timeout()) {
			cancel(err)
			return
		}
	}
}

// read passes on what the client sends, until it has closed its end.
func (k *socket) read() {
	over := false // The service takes nothing more: the rest is read and dropped.
	for {
		channel, message, err := k.next()
		if err != nil {
			return
		}
		k.idle.Reset(IdleTimeout)
		if over {
			continue
		}
		switch {
		case channel == channelStdin:
			err = k.input(message)
		case channel == channelResize:
			var in *corev1.StreamInput
			if in, err = readSize(json.NewDecoder(io.LimitReader(message, maxControl))); err != nil {
				return
			}
			err = k.s.Send(in)
		case channel == channelClose && k.closes:
			text, _ := io.ReadAll(io.LimitReader(message, maxControl))
			if bytes.Equal(text, []byte{channelStdin}) {
				err = k.s.Send(&corev1.StreamInput{End: true})
			}
		}
		over = err != nil
	}
}

// input passes on one message of input, however long it is.
func (k *socket) input(message io.Reader) error {
	for {
		data := make([]byte, piece)
		n, ended := io.ReadFull(message, data)
		if n > 0 {
			k.idle.Reset(IdleTimeout)
			if err := k.s.Send(&corev1.StreamInput{Data: data[:n:n]}); err != nil {
				return err
			}
		}
		if ended != nil {
			return nil //nolint:nilerr // Of the message; the end of the connection comes to light with the next.
		}
	}
}

// write passes on what comes out, and returns how it went.
func (k *socket) write() *metav1.Status {
	for {
		out, err := k.s.Recv()
		if err != nil {
			return statusOf(err)
		}
		for channel, data := range map[byte][]byte{channelStdout: out.GetData(), channelStderr: out.GetErrors()} {
			if len(data) == 0 {
				continue
			}
			k.idle.Reset(IdleTimeout)
			if err := k.send(channel, data); err != nil {
				return statusOf(err)
			}
		}
		if out.GetStatus() != nil {
			return out.GetStatus()
		}
	}
}

// parting is what is said of the end: a Status to those who know version 4, to others the words of a failure.
func (k *socket) parting(status *metav1.Status) []byte {
	switch {
	case k.v4:
		return encodeStatus(status)
	case status.GetStatus() != "Success":
		return []byte(status.GetMessage())
	}
	return nil
}
