package rest

import (
	"errors"
	"io"
	"net/http"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest/negotiate"
)

// MaxBody is the largest request body in bytes.
const MaxBody = 3 << 20

// checkBody refuses, before anything is read, bodies of unknown types, bodies that are too large, and
// parameters that say how to read them but are not understood.
func (ex *exchange) checkBody() error {
	r := ex.r
	if ex.route.body == nil || ex.route.method == http.MethodDelete && r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength > MaxBody {
		return tooLarge()
	}
	contentType := r.Header.Get("Content-Type")
	var ok bool
	if ex.route.method == http.MethodPatch {
		ex.patchType, ok = negotiate.Patch(contentType)
	} else {
		ex.encoding, ok = negotiate.Body(contentType)
	}
	if !ok {
		return unsupportedMediaType(ex.route)
	}
	if ex.route.method == http.MethodDelete {
		return nil
	}
	switch ex.validation {
	case "", "Warn", "Strict", "Ignore":
		return nil
	default:
		return badFieldValidation(ex.route, ex.validation)
	}
}

// readBody appends the request body to b. It gives up on clients that stall, whatever the HTTP version.
func (ex *exchange) readBody(from io.Reader, b []byte) ([]byte, error) {
	client := ex.w.ResponseWriter
	stalled := time.AfterFunc(ex.h.cfg.StallTimeout, func() {
		_ = http.NewResponseController(client).SetReadDeadline(time.Now())
	})
	defer stalled.Stop()
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(b) > MaxBody {
			return b, tooLarge()
		}
		switch {
		case errors.Is(err, io.EOF):
			if len(b) == 0 && ex.patchType != "" {
				return b, apierrors.New(apierrors.BadRequest, "the body of a patch must not be empty")
			}
			return b, nil
		case err != nil:
			return b, apierrors.New(apierrors.BadRequest, "the request body could not be read to its end")
		}
	}
}
