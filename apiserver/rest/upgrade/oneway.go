package upgrade

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gorilla/websocket"

	"monoplane.dev/apierrors"
)

// The subprotocols over which a text is read, such as a log. Without one it is that of bytes.
const (
	textBytes  = "binary.k8s.io"
	textBase64 = "base64.binary.k8s.io"
)

// Content is what an answer that streams is made of, and so what its messages over a WebSocket are.
type Content int

// The contents.
const (
	// Text is written in pieces of any size, each of which is a message of bytes, or of base64 if the client wants that.
	Text Content = iota
	// Lines are events in JSON, each a message of text.
	Lines
	// Delimited are events in protobuf behind their lengths, each a message of bytes.
	Delimited
)

// OneWay is a ResponseWriter that answers over a WebSocket, once the answer is a success: what goes wrong before is an
// HTTP answer. Close it.
type OneWay struct {
	http.ResponseWriter

	r       *http.Request
	content Content
	// protocol is the subprotocol; empty for none.
	protocol string
	// begun is set once there was a header, conn if that was for a WebSocket.
	begun bool
	conn  *websocket.Conn
	// rest is the beginning of an event whose end has not been written.
	rest []byte
	// gone is called when the client has gone.
	gone context.CancelCauseFunc
	stop func()
}

// NewOneWay returns the writer for a request that asks for a WebSocket, or refuses its subprotocols. Gone is called
// when the client has gone.
func NewOneWay(
	w http.ResponseWriter, r *http.Request, content Content, gone context.CancelCauseFunc,
) (*OneWay, error) {
	o := &OneWay{ResponseWriter: w, r: r, content: content, gone: gone, stop: func() {}}
	asked := websocket.Subprotocols(r)
	switch {
	case content == Text && len(asked) > 0:
		i := slices.IndexFunc(asked, func(p string) bool { return p == textBytes || p == textBase64 })
		if i < 0 {
			return nil, apierrors.New(apierrors.Forbidden, "requested protocol(s) are not supported: %q; supports %q", asked,
				[]string{textBytes, textBase64})
		}
		o.protocol = asked[i]
	case len(asked) == 1:
		o.protocol = asked[0] // It says nothing of events, but a client that asks for one wants to hear it.
	}
	return o, nil
}

// WriteHeader answers with an error, or makes the connection a WebSocket.
func (o *OneWay) WriteHeader(code int) {
	if o.begun {
		return
	}
	o.begun = true
	if code != http.StatusOK {
		o.ResponseWriter.WriteHeader(code)
		return
	}
	u := websocket.Upgrader{CheckOrigin: anyOrigin}
	if o.protocol != "" {
		u.Subprotocols = []string{o.protocol}
	}
	header := o.Header().Clone()
	header.Del("Content-Type")
	conn, err := u.Upgrade(o.ResponseWriter, o.r, header)
	if err != nil {
		o.gone(err) // It has answered.
		return
	}
	o.conn, o.stop = conn, watchPeer(conn.NetConn(), goneAfter, o.gone)
	go func() {
		for { // What a client says is for nobody; that it goes is.
			if _, _, err := conn.NextReader(); err != nil {
				o.gone(io.EOF)
				return
			}
		}
	}()
	if o.content == Text {
		_, _ = o.Write(nil) // as kube-apiserver begins; who has gone is seen by the reader
	}
}

// Write writes the messages that are whole.
func (o *OneWay) Write(b []byte) (int, error) {
	if !o.begun {
		o.WriteHeader(http.StatusOK)
	}
	if o.conn == nil {
		return o.ResponseWriter.Write(b)
	}
	if o.content == Text {
		return len(b), o.text(b)
	}
	o.rest = append(o.rest, b...)
	kind := websocket.TextMessage
	if o.content == Delimited {
		kind = websocket.BinaryMessage
	}
	whole := o.rest
	for {
		event, after, ok := o.next(whole)
		if !ok {
			break
		}
		if err := o.conn.WriteMessage(kind, event); err != nil {
			return 0, err
		}
		whole = after
	}
	o.rest = append(o.rest[:0], whole...)
	return len(b), nil
}

func (o *OneWay) text(b []byte) error {
	if o.protocol == textBase64 {
		return o.conn.WriteMessage(websocket.TextMessage, []byte(base64.StdEncoding.EncodeToString(b)))
	}
	return o.conn.WriteMessage(websocket.BinaryMessage, b)
}

// next returns the first event of b, if it is whole.
func (o *OneWay) next(b []byte) (event, after []byte, ok bool) {
	if o.content == Lines {
		i := bytes.IndexByte(b, '\n') + 1
		return b[:i], b[i:], i > 0
	}
	const length = 4
	if len(b) < length {
		return nil, b, false
	}
	end := length + int(binary.BigEndian.Uint32(b))
	if len(b) < end {
		return nil, b, false
	}
	return b[length:end], b[end:], true
}

// FlushError is for http.ResponseController.
func (o *OneWay) FlushError() error {
	if o.conn != nil {
		return nil // Messages wait nowhere.
	}
	return http.NewResponseController(o.ResponseWriter).Flush()
}

// SetWriteDeadline is for http.ResponseController.
func (o *OneWay) SetWriteDeadline(t time.Time) error {
	if o.conn != nil {
		return o.conn.NetConn().SetWriteDeadline(t)
	}
	return http.NewResponseController(o.ResponseWriter).SetWriteDeadline(t)
}

// Close ends the WebSocket, if there is one.
func (o *OneWay) Close() {
	o.stop()
	if o.conn == nil {
		return
	}
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = o.conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(partingTime)) // or it has gone
	_ = o.conn.Close()
}
