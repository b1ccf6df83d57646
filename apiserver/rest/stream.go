package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// stream is the state of a watch or a log that is being sent.
type stream struct {
	table *tableWriter
	// buf is reused from batch to batch.
	buf []byte
	// scratch holds the object of the frame that is being made.
	scratch []byte
	// broken is set when the client does not take any more.
	broken bool
	// controller and guard are made with the first write and serve all of them.
	controller *http.ResponseController
	guard      *time.Timer
}

var errClientGone = errors.New("rest: the client is gone")

// accept sends the header as soon as the service has accepted the call, before there is anything to send.
func (ex *exchange) accept() {
	ex.begin(http.StatusOK, ex.streamType())
	_ = http.NewResponseController(ex.w).Flush()
}

func (ex *exchange) streamType() string {
	if ex.route.logs {
		return "text/plain"
	}
	return ex.out.StreamContentType()
}

// send writes one message of the service, with one flush.
func (ex *exchange) send(m proto.Message) error {
	if ex.stream.broken {
		return errClientGone
	}
	if ex.route.logs {
		text, ok := m.(*httpbody.HttpBody)
		if !ok {
			return errUnknownMessage
		}
		return ex.write(text.GetData())
	}
	b := ex.stream.buf[:0]
	var err error
	ex.route.service.Events(m, func(e object.Event) bool {
		if b, err = ex.appendFrame(b, e); err == nil && len(b) >= piece {
			err = ex.write(b)
			b = b[:0]
		}
		return err == nil
	})
	if err == nil && len(b) > 0 {
		err = ex.write(b)
	}
	if cap(b) <= maxPooled {
		ex.stream.buf = b
	}
	return err
}

// write sends a piece at once. A client that does not take it in time is cut off.
func (ex *exchange) write(b []byte) error {
	ex.begin(http.StatusOK, ex.streamType())
	s := &ex.stream
	if s.guard == nil {
		s.controller = http.NewResponseController(ex.w)
		controller := s.controller
		s.guard = time.AfterFunc(ex.h.cfg.StallTimeout, func() { _ = controller.SetWriteDeadline(time.Now()) })
	} else {
		s.guard.Reset(ex.h.cfg.StallTimeout)
	}
	defer s.guard.Stop()
	if _, err := ex.w.Write(b); err != nil {
		s.broken = true
		return errClientGone
	}
	if err := s.controller.Flush(); err != nil {
		s.broken = true
		return errClientGone
	}
	return nil
}

// end finishes a stream that the service, or a failed write, has ended. Before the header is sent an error
// becomes the answer; after that a watch ends with an ERROR event if the client has to know, while the end of
// a connection that may simply be opened again needs no words.
func (ex *exchange) end(ctx context.Context, err error) {
	if ex.stream.broken || ex.r.Context().Err() != nil {
		return
	}
	if !ex.answered {
		ex.fail(err)
		return
	}
	if ctx.Err() != nil || ex.route.logs {
		return
	}
	e := apierrors.From(err)
	switch e.Reason() {
	case apierrors.ServiceUnavailable, apierrors.Timeout, apierrors.Conflict:
		return
	case apierrors.InternalError:
		ex.h.logError(ex.r, e)
	}
	if b, err := ex.appendErrorFrame(nil, e.Status()); err == nil {
		_ = ex.write(b)
	}
}
