// Package upgrade serves exec, attach and port-forward over HTTP connections that are upgraded, as kubectl, client-go
// and clients in other languages ask for them: WebSocket (v5.channel.k8s.io and older, with base64 or without;
// port-forward with two channels for each port, or with SPDY through a tunnel of SPDY/3.1+portforward.k8s.io) and
// SPDY/3.1 (v4.channel.k8s.io and older, portforward.k8s.io). Watches and logs, which go one way, are served over a
// WebSocket too, whose messages are their events or their text (binary.k8s.io, base64.binary.k8s.io).
//
// Guarantees: nothing is upgraded before the service has accepted the call, so that a refusal is an HTTP answer; how a
// command ended is said before the connection is closed, also when the server stops; what a client sends is held in
// pieces of at most 32 KiB, of which the service takes one after the other, however large its frames are; a connection
// without traffic ends after IdleTimeout, one whose client's machine acknowledges nothing after goneAfter, and with it
// all that was begun for it. A slow client slows its own command, and is waited for when that has ended: what it has
// not read yet would be lost with the connection.
//
// It knows nothing about pods: it is given a Stream to the service.
package upgrade

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec"
)

const (
	// IdleTimeout is how long a connection may be without traffic, as long as at kubelets.
	IdleTimeout = 4 * time.Hour
	// ProbeAfter is how often a client that uses a WebSocket is looked for: when a command does not read its input,
	// nothing is read from the client either, and only a write shows that it has gone.
	ProbeAfter = 15 * time.Second
	// piece is how much of what a client sends one message carries.
	piece = 32 << 10
	// partingTime is how long a client may take to receive the last words, and to close its end, when the server stops
	// or the client is taken for gone.
	partingTime = 5 * time.Second
	// creationTime is how long a client may take to create its streams.
	creationTime = 30 * time.Second
)

// Stream is a call to the service. Send and Recv may run at the same time, each on one goroutine.
type Stream interface {
	Send(in *corev1.StreamInput) error
	Recv() (*corev1.StreamOutput, error)
	// Close ends the call, and what waits in Send and Recv.
	Close()
}

var errIdle = errors.New("there was no traffic for " + IdleTimeout.String())

// IsWebSocket says whether a request asks for a WebSocket, IsSPDY whether it asks for SPDY/3.1.
func IsWebSocket(r *http.Request) bool { return websocket.IsWebSocketUpgrade(r) }

// IsSPDY says whether a request asks for SPDY/3.1.
func IsSPDY(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") &&
		strings.EqualFold(r.Header.Get("Upgrade"), "SPDY/3.1")
}

// readSize reads what clients say of their terminals.
func readSize(decoder *json.Decoder) (*corev1.StreamInput, error) {
	var size struct{ Width, Height uint16 }
	if err := decoder.Decode(&size); err != nil {
		return nil, err
	}
	return &corev1.StreamInput{Size: &corev1.TerminalSize{Width: int32(size.Width), Height: int32(size.Height)}}, nil
}

// statusOf is the status of a call that has failed.
func statusOf(err error) *metav1.Status { return apierrors.From(err).Status() }

// encodeStatus writes a status as clients read it.
func encodeStatus(s *metav1.Status) []byte { return codec.AppendObject(nil, s) }
