package gate

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

type connKey struct{}

// of returns the connection below a TLS connection that a Listener accepted, nil for any other.
func of(c net.Conn) *Conn {
	if t, ok := c.(*tls.Conn); ok {
		below, _ := t.NetConn().(*Conn)
		return below
	}
	return nil
}

// ConnContext is for http.Server, whose requests then know their connection.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, of(c))
}

// From returns the connection of an HTTP request, nil when it is not known.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Anonymous prepares an answer over HTTP to a client that has not shown who it is: it is the last one of the
// connection.
func Anonymous(ctx context.Context, header http.Header) {
	if c := From(ctx); !c.IsAuthenticated() {
		header.Set("Connection", "close")
		c.Refused()
	}
}
