package inproc

import "context"

// Option changes how a connection behaves.
type Option func(*conn)

// WithContext applies f to the context of every handler called through the connection; the connection's owner
// uses it to set the identity. The context that f gets carries the call's deadline, cancellation and
// incoming metadata.
func WithContext(f func(context.Context) context.Context) Option {
	return func(c *conn) { c.contexts = append(c.contexts, f) }
}

// PassValues lets the values of the caller's context through to the handler. Only code that is itself a
// trusted front of the server uses it.
func PassValues() Option { return func(c *conn) { c.passValues = true } }

// WithClone copies every message both ways, so that callers may change what they sent and received.
func WithClone() Option { return func(c *conn) { c.clone = true } }

// Detached runs unary handlers on goroutines of their own, so that a call ends with its context even when the
// handler goes on. Streaming handlers always run like that.
func Detached() Option { return func(c *conn) { c.detached = true } }

// WithBuffer sets how many messages a stream holds in each direction before the sender waits; 16 by default.
func WithBuffer(messages int) Option {
	return func(c *conn) {
		if messages >= 0 {
			c.buffer = messages
		}
	}
}
