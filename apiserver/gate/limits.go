package gate

import "time"

// What both APIs let one connection have, authenticated or not.
const (
	// MaxHeaderBytes bounds the header of a request, as HTTP/2 counts it: names, values and 32 bytes for each.
	MaxHeaderBytes = 64 << 10
	// MaxStreams is how many requests a connection may have at once.
	MaxStreams = 1000
	// MaxFrame bounds a frame of HTTP/2, for which memory is taken as soon as its length is known.
	MaxFrame = 16 << 10
	// IdleTimeout is how long a connection without requests is kept.
	IdleTimeout = 3 * time.Minute
	// OpeningTimeout is how long a client may take for the first words of HTTP.
	OpeningTimeout = 10 * time.Second
)

// Limits are those of one listener. Zero stands for the default.
type Limits struct {
	// MaxConnections is how many connections there may be; 4096 by default.
	MaxConnections int
	// MaxPerAddress is how many of them one remote address may have; half of them by default. An address is an IPv4
	// address or an IPv6 network of 64 bits. Loopback addresses have no bound of their own, because all local clients
	// share them.
	MaxPerAddress int
	// MaxUnauthenticated is how many of all connections may be of clients that have not shown who they are; half of them,
	// 256 at most, by default.
	MaxUnauthenticated int
	// MaxUnauthenticatedPerAddress is how many of those one remote address may have; a quarter of them by default.
	MaxUnauthenticatedPerAddress int
	// HandshakeTimeout is how long the TLS handshake may take; 10 s by default, as long as Go's
	// clients wait for it: hundreds that connect at once to a busy machine take some seconds.
	HandshakeTimeout time.Duration
	// Lifetime is how long a connection may last whose client does not show who it is; 15 s by default.
	Lifetime time.Duration
	// Patience is how long an unauthenticated connection lasts at least when newer ones need its place; 500 ms by
	// default.
	Patience time.Duration
	// Silence is Patience for connections on which nothing has come at all; 50 ms by default.
	Silence time.Duration
	// Bytes is how much an unauthenticated client may send; what comes after waits until it is authenticated. 128 KiB by
	// default: a handshake and the header of one request, at least.
	Bytes int64
	// MaxRefusals is how many requests may be answered without knowing the client, before the connection is closed; 16 by
	// default.
	MaxRefusals int
}

// maxUnauthenticated bounds the default: at their worst they hold half a megabyte each.
const maxUnauthenticated = 256

func (l *Limits) complete() {
	fill(&l.MaxConnections, 4096)
	fill(&l.MaxPerAddress, max(1, l.MaxConnections/2))
	fill(&l.MaxUnauthenticated, min(maxUnauthenticated, max(1, l.MaxConnections/2)))
	fill(&l.MaxUnauthenticatedPerAddress, max(1, l.MaxUnauthenticated/4))
	fill(&l.HandshakeTimeout, 10*time.Second)
	fill(&l.Lifetime, 15*time.Second)
	fill(&l.Patience, 500*time.Millisecond)
	fill(&l.Silence, 50*time.Millisecond)
	fill(&l.Bytes, 128<<10)
	fill(&l.MaxRefusals, 16)
}

func fill[T int | int64 | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}
