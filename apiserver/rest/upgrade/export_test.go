package upgrade

import (
	"net"

	"github.com/gorilla/websocket"
)

// NewTunnel is a connection through a WebSocket, for the end of the client.
func NewTunnel(conn *websocket.Conn) net.Conn { return &tunnel{conn: conn} }

// NewWholeFrames is a connection that passes on SPDY's frames as a whole.
func NewWholeFrames(conn net.Conn) net.Conn { return &wholeFrames{Conn: conn} }
