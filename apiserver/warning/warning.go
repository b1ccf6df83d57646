// Package warning carries warnings from wherever they arise in a request to the front that answers it.
//
// A front (REST, the gRPC interceptor) calls WithCollector before it calls the handler and sends what the
// Collector holds with the answer: REST as `Warning: 299 - "..."` headers (see Header), gRPC as header
// metadata "warning". Handlers call Add. Warnings are distinct, in the order in which they came, printable
// ASCII, and bounded in number and length, so that any of them fits a header.
//
// Without a collector in the context Add does nothing: a warning never decides whether a request works.
package warning

import (
	"context"
	"strings"
	"sync"
)

const (
	// MaxTexts is the most warnings that one request collects; further ones are counted only.
	MaxTexts = 64
	// MaxBytes is the most bytes of one warning; a longer one is cut.
	MaxBytes = 1024
)

// MetadataKey is the gRPC header metadata key that carries warnings.
const MetadataKey = "warning"

type key struct{}

// Collector gathers the warnings of one request. It is safe for concurrent use.
type Collector struct {
	mu    sync.Mutex
	texts []string
}

// WithCollector returns a context in which Add reaches the returned collector.
func WithCollector(ctx context.Context) (context.Context, *Collector) {
	c := &Collector{}
	return context.WithValue(ctx, key{}, c), c
}

// Collected says whether somebody collects the warnings of the request that ctx belongs to.
func Collected(ctx context.Context) bool {
	_, ok := ctx.Value(key{}).(*Collector)
	return ok
}

// Add records a warning for the client of the request that ctx belongs to.
func Add(ctx context.Context, text string) {
	if c, ok := ctx.Value(key{}).(*Collector); ok {
		c.Add(text)
	}
}

// Add records a warning, once however often it is added.
func (c *Collector) Add(text string) {
	text = clean(text)
	if text == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.texts) >= MaxTexts {
		return
	}
	for _, t := range c.texts {
		if t == text {
			return
		}
	}
	c.texts = append(c.texts, text)
}

// Texts returns the warnings so far, oldest first.
func (c *Collector) Texts() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.texts...)
}

// Header returns the value of an HTTP Warning header with the given text, as RFC 7234 wrote it and as
// Kubernetes clients read it: code 299, no agent, quoted text.
func Header(text string) string {
	var b strings.Builder
	b.WriteString(`299 - "`)
	for _, r := range clean(text) {
		if r == '"' || r == '\\' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String()
}

// clean makes text fit a header value on both wires: one line of printable ASCII, bounded. Spaces stand for
// control characters, question marks for other characters.
func clean(text string) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r >= 0x7f && r <= 0x9f:
			return ' '
		case r > '~':
			return '?'
		}
		return r
	}, text))
	return text[:min(len(text), MaxBytes)]
}
