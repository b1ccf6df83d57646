package upgrade

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"time"

	"github.com/gorilla/websocket"
)

// The subprotocols of WebSockets, by which messages begin with the number of their channel: as a byte, or, in those
// that are named so, as a digit, which base64 follows. A client that asks for none gets the oldest. Clients may send
// either as text, which some do that have a string at hand: what a message is follows from the protocol.
const (
	socketV5       = "v5.channel.k8s.io"
	socketV4       = "v4.channel.k8s.io"
	socketV4Base64 = "v4.base64.channel.k8s.io"
	socketV1       = "channel.k8s.io"
	socketV1Base64 = "base64.channel.k8s.io"
)

// commandProtocols are those over which a command can be talked with.
var commandProtocols = []string{socketV5, socketV4, socketV4Base64, socketV1, socketV1Base64}

// channels are the channels of a WebSocket. Send may be called from one goroutine while another calls next.
type channels struct {
	conn   *websocket.Conn
	base64 bool
	v4     bool // The end of a command is a Status.
	closes bool // The client can say that a channel has ended.
}

func newChannels(conn *websocket.Conn) channels {
	protocol := conn.Subprotocol()
	return channels{
		conn: conn, base64: protocol == socketV4Base64 || protocol == socketV1Base64, closes: protocol == socketV5,
		v4: protocol == socketV5 || protocol == socketV4 || protocol == socketV4Base64,
	}
}

// next returns the channel of the next message that has one, and the rest of the message, which is read as it comes.
func (c *channels) next() (channel byte, rest io.Reader, err error) {
	for {
		_, message, err := c.conn.NextReader()
		if err != nil {
			return 0, nil, err
		}
		var first [1]byte
		if _, err := io.ReadFull(message, first[:]); err != nil {
			continue // An empty one, or the connection has ended, which the next call says.
		}
		if c.base64 {
			return first[0] - '0', base64.NewDecoder(base64.StdEncoding, message), nil
		}
		return first[0], message, nil
	}
}

// send writes a message.
func (c *channels) send(channel byte, data []byte) error {
	if c.base64 {
		text := append(make([]byte, 0, 1+base64.StdEncoding.EncodedLen(len(data))), '0'+channel)
		return c.conn.WriteMessage(websocket.TextMessage, base64.StdEncoding.AppendEncode(text, data))
	}
	w, err := c.conn.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	_, _ = w.Write([]byte{channel})
	_, _ = w.Write(data)
	return w.Close()
}

// bye says that all has been said, and waits for the client to close its end, for which closed is closed: to close
// before would take from the client what it has not read yet. That can take long: a pager shows one page after the
// other.
func (c *channels) bye(closed <-chan struct{}) {
	_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(IdleTimeout))
	<-closed
}

// closeAfter closes a connection partingTime after ctx has ended, and with it ends what waits for the client. (The
// library sets deadlines of its own for writes.) It returns what calls that off.
func closeAfter(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { time.AfterFunc(partingTime, func() { _ = conn.Close() }) })
}
