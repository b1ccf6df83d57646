package rest

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/metering"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/warning"
)

// exchange is one request and its answer. To the gateway it is the Marshaler, the one of the forms that were
// negotiated: it decodes the body (decode.go) and encodes what the service answers (answer.go, stream.go).
type exchange struct {
	h     *Handler
	r     *http.Request
	w     writer
	route *route
	query url.Values

	// out is the form of the answer, include what table rows carry.
	out     negotiate.Output
	include table.Include
	// encoding is the form of the body; patchType is set instead for a patch.
	encoding   negotiate.Encoding
	patchType  string
	validation string
	warnings   *warning.Collector

	// buffer is what a single answer is encoded in, from the handler's pool; nil until then.
	buffer *[]byte
	// stream is what a watch keeps from one message to the next.
	stream stream
}

var _ runtime.Marshaler = (*exchange)(nil)

// context bounds the request in time and puts in place what the service looks for. How long a watch lasts is decided
// by the service (registry.Watch), for gRPC as for REST.
func (ex *exchange) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, ex.warnings = warning.WithCollector(ctx)
	ex.w.warnings = ex.warnings
	if ex.route.stream == nil {
		ctx, ex.w.cancel = context.WithTimeout(ctx, requestTimeout(ex.query, ex.h.cfg.RequestTimeout))
		return ctx, ex.w.cancel
	}
	ctx, ex.w.cancel = context.WithCancel(ctx)
	stop := context.AfterFunc(ex.h.closing, ex.w.cancel)
	return ctx, func() { stop(); ex.w.cancel() }
}

// requestTimeout is what the client asks for (kubectl --request-timeout), within what the server allows.
func requestTimeout(query url.Values, limit time.Duration) time.Duration {
	if text := query.Get("timeout"); text != "" {
		if d, err := time.ParseDuration(text); err == nil && d > 0 && d < limit {
			return d
		}
	}
	return limit
}

// fail answers with an error, unless the answer has begun.
func (ex *exchange) fail(err error) {
	if ex.w.begun {
		return
	}
	switch {
	case ex.r.Context().Err() != nil:
		// The client is gone, which is no failure of the server and not worth a line in its log.
		err = apierrors.New(apierrors.Timeout, "the client closed the request")
	case ex.route.stream != nil && ex.h.closing.Err() != nil:
		err = apierrors.New(apierrors.ServiceUnavailable, "the server is stopping")
	}
	ex.h.writeError(&ex.w, ex.r, err)
}

// aborted, deferred, breaks the connection off when the code panics in the middle of an answer, so that the
// client does not take the part for the whole. Other panics go on to Handler.recovered.
func (ex *exchange) aborted() {
	v := recover()
	if v == nil {
		return
	}
	if !ex.w.begun {
		ex.w.code = http.StatusInternalServerError // as Handler.recovered answers
	}
	if ex.w.begun && !isAbort(v) {
		ex.h.logPanic(ex.r, v)
		v = http.ErrAbortHandler
	}
	panic(v)
}

// answered says how the request was answered.
func (ex *exchange) answered() metering.Answer {
	return metering.Answer{Code: ex.w.code, Size: ex.w.size, DryRun: ex.query.Has("dryRun")}
}

// end ends the answer, and gives back what the exchange has borrowed.
func (ex *exchange) end() {
	ex.w.end()
	if ex.buffer != nil {
		ex.h.release(ex.buffer)
	}
}
