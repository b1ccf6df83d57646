package rest

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// stream is what a watch keeps from one message to the next.
type stream struct {
	// table writes the tables; only the first has columns.
	table *tableWriter
	// frames holds the frames of one message, scratch the object of the frame that is being made.
	frames, scratch []byte
}

// accept is called by the gateway without a message when the service has accepted a stream, and with each of its
// messages. The header is sent at once, before there is anything to send, unless the first message has a say in it.
func (ex *exchange) accept(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	if m != nil || ex.route.typed {
		return nil
	}
	w.Header().Set("Content-Type", ex.ContentType(nil))
	w.WriteHeader(http.StatusOK)
	return http.NewResponseController(w).Flush()
}

// Delimiter is what the gateway writes after each message of a stream: frames have their ends in themselves.
func (ex *exchange) Delimiter() []byte { return nil }

// encodeEvents encodes one message of a watch, the events of which are many frames. (The messages of a log are text,
// which the gateway writes as it is.)
func (ex *exchange) encodeEvents(v any) (b []byte, err error) {
	m, ok := v.(proto.Message)
	if !ok || ex.route.service.Events == nil {
		return nil, fmt.Errorf("%w: %T", errUnknownMessage, v)
	}
	b = ex.stream.frames[:0]
	ex.route.service.Events(m, func(e object.Event) bool {
		if len(b) >= piece {
			_, _ = ex.w.Write(b)
			b = b[:0]
		}
		b, err = ex.appendFrame(b, e)
		return err == nil
	})
	if cap(b) <= maxPooled {
		ex.stream.frames = b
	}
	return b, err
}

// encodeEnd encodes why a watch breaks off, if the client has to know: the end of a stream that may simply be opened
// again needs no words, and those of a log would be taken for its text.
func (ex *exchange) encodeEnd(v proto.Message) ([]byte, error) {
	p, _ := v.(*spb.Status)
	if ex.route.text || codes.Code(p.GetCode()) == codes.Canceled {
		return nil, nil
	}
	e := apierrors.From(status.FromProto(p).Err())
	switch e.Reason() {
	case apierrors.ServiceUnavailable, apierrors.Timeout, apierrors.Conflict:
		return nil, nil
	case apierrors.InternalError:
		ex.h.logError(ex.r, e)
	}
	return ex.appendErrorFrame(nil, e.Status())
}
