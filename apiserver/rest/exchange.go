package rest

import (
	"context"
	"net/http"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/warning"
)

// exchange is one request and its answer. To the gateway it is the ResponseWriter, but one that swallows
// what it is given: the answer is written to the client by the exchange itself, from the hooks that the
// gateway calls with each message (see gateway.go).
type exchange struct {
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	route *route

	// out is the form of the answer, include what table rows carry.
	out     negotiate.Output
	include table.Include
	// encoding is the form of the body; patchType is set instead for a patch.
	encoding   negotiate.Encoding
	patchType  string
	validation string
	warnings   *warning.Collector

	// err is why the body could not be decoded; the gateway knows its text only.
	err error
	// answered is set once the header has been sent.
	answered bool
	// stream is the state of a streamed answer.
	stream stream
}

type exchangeKey struct{}

func exchangeFrom(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	return ex
}

// Header lets the gateway set a Content-Type, which begin replaces; it sets nothing else.
func (ex *exchange) Header() http.Header { return ex.w.Header() }

// WriteHeader does nothing: the exchange has answered, or will.
func (ex *exchange) WriteHeader(int) {}

// Write does nothing: the exchange has answered.
func (ex *exchange) Write(b []byte) (int, error) { return len(b), nil }

// FlushError does nothing: the exchange flushes when a message is complete.
func (ex *exchange) FlushError() error { return nil }

// begin sends the header, with the warnings so far.
func (ex *exchange) begin(code int, contentType string) {
	if ex.answered {
		return
	}
	ex.answered = true
	h := ex.w.Header()
	h["Content-Type"] = ex.h.jsonType
	if contentType != negotiate.TypeJSON {
		h["Content-Type"] = []string{contentType}
	}
	if ex.warnings != nil {
		for _, text := range ex.warnings.Texts() {
			h["Warning"] = append(h["Warning"], warning.Header(text))
		}
	}
	ex.w.WriteHeader(code)
}

// fail answers with an error, unless the answer has begun.
func (ex *exchange) fail(err error) {
	if ex.answered {
		return
	}
	ex.answered = true
	switch {
	case ex.err != nil:
		err = ex.err
	case ex.r.Context().Err() != nil:
		// The client is gone, which is no failure of the server and not worth a line in its log.
		err = apierrors.New(apierrors.Timeout, "the client closed the request")
	case ex.route.stream && ex.h.closing.Err() != nil:
		err = apierrors.New(apierrors.ServiceUnavailable, "the server is stopping")
	}
	if ex.warnings != nil {
		for _, text := range ex.warnings.Texts() {
			ex.w.Header().Add("Warning", warning.Header(text))
		}
	}
	ex.h.writeError(ex.w, ex.r, err)
}

// aborted, deferred, breaks the connection off when the code panics in the middle of an answer, so that the
// client does not take the part for the whole. Other panics go on to Handler.recovered.
func (ex *exchange) aborted() {
	v := recover()
	if v == nil {
		return
	}
	if ex.answered && !isAbort(v) {
		ex.h.logPanic(ex.r, v)
		v = http.ErrAbortHandler
	}
	panic(v)
}
