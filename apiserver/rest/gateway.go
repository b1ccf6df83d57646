package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/warning"
)

// muxOptions hook the front into the generated gateway handlers. Those decode requests, call the service and
// hand every message to forward, which writes it to the client; what they would write themselves is empty
// and goes to the exchange, which swallows it.
func (h *Handler) muxOptions() []runtime.ServeMuxOption {
	none := func(string) (string, bool) { return "", false }
	return []runtime.ServeMuxOption{
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		runtime.WithForwardResponseOption(h.forward),
		runtime.WithForwardResponseRewriter(func(context.Context, proto.Message) (any, error) { return h.nothing, nil }),
		runtime.WithErrorHandler(h.failed),
		runtime.WithStreamErrorHandler(h.streamFailed),
		runtime.WithIncomingHeaderMatcher(none),
		runtime.WithOutgoingHeaderMatcher(none),
		runtime.WithOutgoingTrailerMatcher(none),
		runtime.WithDisableChunkedEncoding(),
	}
}

var errNotAnExchange = errors.New("rest: a gateway handler was called from outside the front")

// forward writes a message of the service to the client. A stream calls it first without one, when the
// service has accepted the call or ended it.
func (h *Handler) forward(ctx context.Context, w http.ResponseWriter, m proto.Message) error {
	ex, ok := w.(*exchange)
	if !ok {
		return errNotAnExchange
	}
	md, _ := runtime.ServerMetadataFromContext(ctx)
	for _, text := range md.HeaderMD[warning.MetadataKey] {
		ex.warnings.Add(text)
	}
	if !ex.route.stream {
		return ex.answer(m)
	}
	if m == nil {
		// Without a header the call has failed; its error comes next and becomes the answer.
		if md.HeaderMD != nil {
			ex.accept()
		}
		return nil
	}
	return ex.send(m)
}

// failed answers a call that the service refused, or whose request could not be decoded.
func (h *Handler) failed(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	if ex, ok := w.(*exchange); ok {
		ex.fail(err)
	}
}

// streamFailed ends a stream. What it returns is written to the exchange, that is, nowhere.
func (h *Handler) streamFailed(ctx context.Context, err error) *status.Status {
	if ex := exchangeFrom(ctx); ex != nil {
		ex.end(ctx, err)
	}
	return status.New(codes.Unknown, "")
}

// marshaler connects the generated handlers with the exchange: it decodes bodies, which know how, and
// encodes nothing.
type marshaler struct{}

var _ runtime.Marshaler = marshaler{}

func (marshaler) Marshal(any) ([]byte, error) { return nil, nil }
func (marshaler) Unmarshal([]byte, any) error { return errNotAnExchange }
func (marshaler) ContentType(any) string      { return "" }
func (marshaler) Delimiter() []byte           { return nil }
func (marshaler) NewEncoder(io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(any) error { return nil })
}
func (marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		b, ok := r.(body)
		if !ok {
			return errNotAnExchange
		}
		return b.ex.decode(v)
	})
}
