package rest

import (
	"crypto/tls"
	"net/http"
	"time"
)

// Bounds of the HTTP server.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 256 << 10
	maxStreams     = 1000
	pingAfter      = 30 * time.Second
	pingTimeout    = 15 * time.Second
)

// NewServer returns a server for the front: HTTP/1.1 and HTTP/2, with bounds on what one connection can take.
// There is no bound on the length of an answer, because watches have none; clients that stall are cut off by
// the front, dead connections are found by HTTP/2 pings (a timeout of each write as well would cost a timer each). The caller sets ErrorLog, serves, and shuts down: call
// Handler.Close first, so that Shutdown does not wait for watches.
func NewServer(h http.Handler, config *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler: h, TLSConfig: config,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      pingAfter,
			PingTimeout:          pingTimeout,
		},
	}
}
