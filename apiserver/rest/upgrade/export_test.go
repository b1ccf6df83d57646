package upgrade

import (
	"net"

	"github.com/gorilla/websocket"
)

// NewTunnel is a connection through a WebSocket, for the end of the client.
func NewTunnel(conn *websocket.Conn) net.Conn { return &tunnel{conn: conn} }
