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
	conn *websocket.Conn
	s    Stream
	idle *time.Timer
}

// WebSocket serves a command over a WebSocket until it or the client has ended, or ctx has. Probe is ProbeAfter.
func WebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, s Stream, probe time.Duration) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.Close()
	u := websocket.Upgrader{
		Subprotocols:    []string{"v5.channel.k8s.io", "v4.channel.k8s.io"},
		WriteBufferSize: piece + 1, ReadBufferSize: 4 << 10,
	}
	conn, err := u.Upgrade(w, r, nil)
	if err != nil {
		return // It has answered.
	}
	defer conn.Close()
	k := &socket{conn: conn, s: s, idle: time.AfterFunc(IdleTimeout, func() { cancel(errIdle) })}
	defer k.idle.Stop()
	// A write that waits for the client ends too.
	defer context.AfterFunc(ctx, func() { _ = conn.NetConn().SetDeadline(time.Now().Add(partingTime)) })()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		k.read()
		cancel(io.EOF) // The client has gone.
	}()
	go k.probe(ctx, cancel, probe)
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
	_ = conn.SetWriteDeadline(time.Now().Add(partingTime))
	_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channelStatus}, encodeStatus(status)...))
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(partingTime))
	// To close while something is unread would take from the client what it has not read yet.
	_ = conn.NetConn().SetReadDeadline(time.Now().Add(partingTime))
	<-closed
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
		kind, message, err := k.conn.NextReader()
		if err != nil {
			return
		}
		k.idle.Reset(IdleTimeout)
		var channel [1]byte
		if _, err := io.ReadFull(message, channel[:]); err != nil || kind != websocket.BinaryMessage || over {
			continue
		}
		switch channel[0] {
		case channelStdin:
			err = k.input(message)
		case channelResize:
			var in *corev1.StreamInput
			if in, err = readSize(json.NewDecoder(io.LimitReader(message, maxControl))); err != nil {
				return
			}
			err = k.s.Send(in)
		case channelClose:
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
			w, err := k.conn.NextWriter(websocket.BinaryMessage)
			if err == nil {
				_, _ = w.Write([]byte{channel})
				_, _ = w.Write(data)
				err = w.Close()
			}
			if err != nil {
				return statusOf(err)
			}
		}
		if out.GetStatus() != nil {
			return out.GetStatus()
		}
	}
}
