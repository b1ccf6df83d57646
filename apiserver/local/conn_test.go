package local

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// A connection inside the process is one as the package net describes it.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		a, b := pipe()
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}
