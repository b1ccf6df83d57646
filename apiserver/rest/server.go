package rest

import (
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net/http"
	"strings"

	"monoplane.dev/apiserver/gate"
)

// NewServer returns a server for the front: HTTP/1.1 and HTTP/2, with the bounds of package gate on what one
// connection can take, on a listener of that package.
// There is no bound on the length of an answer, because watches have none; clients that stall are cut off by
// the front, dead connections are found by HTTP/2 pings (a timeout of each write as well would cost a timer each).
// What net/http has to say goes to logger. The caller serves, and shuts down: call Handler.Close first, so that
// Shutdown does not wait for watches.
func NewServer(h http.Handler, config *tls.Config, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler: h, TLSConfig: config,
		ReadHeaderTimeout: gate.OpeningTimeout, IdleTimeout: gate.IdleTimeout, MaxHeaderBytes: gate.MaxHeaderBytes,
		ConnContext: gate.ConnContext,
		Protocols:   protocols, ErrorLog: log.New(serverLog{logger}, "", 0),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: gate.MaxStreams,
			MaxReadFrameSize:     gate.MaxFrame,
			SendPingTimeout:      gate.ProbeAfter,
			PingTimeout:          gate.ProbeTimeout,
		},
	}
}

// serverLog takes the lines of net/http.
type serverLog struct{ logger *slog.Logger }

// Write logs one line. What a client alone can bring about (a port scan, a health check over TCP, a certificate that
// it does not trust) is no news for the operator; the rest, such as no more file descriptors, is.
func (l serverLog) Write(line []byte) (int, error) {
	text, level := strings.TrimSpace(string(line)), slog.LevelWarn
	if strings.HasPrefix(text, "http: TLS handshake error ") || strings.HasPrefix(text, "http2: server") {
		level = slog.LevelDebug
	}
	l.logger.Log(context.Background(), level, "HTTP server: "+text)
	return len(line), nil
}
