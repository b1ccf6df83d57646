package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/fieldmanager"
	"monoplane.dev/apiserver/remains"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/warning"
)

// This file is the gateway: it does for any method of any kind what protoc-gen-grpc-gateway writes anew for each of
// them, with the same run time. A kind costs no generated code, and a rule can only be served by the method that it
// belongs to.

// newMux returns what the run time of the gateway asks for: who answers errors. It routes nothing (see router).
func (h *Handler) newMux() *runtime.ServeMux {
	return runtime.NewServeMux(
		runtime.WithErrorHandler(h.failed),
		runtime.WithStreamErrorHandler(streamFailed),
		runtime.WithWriteContentLength(),
		runtime.WithDisableChunkedEncoding(),
	)
}

// everything is the filter of a query from which nothing is left out: form has done so.
var everything = utilities.NewDoubleArray(nil)

// call makes the request message of the route's method, sends it, and has the gateway forward what comes back.
func (r *route) call(ctx context.Context, ex *exchange, v values) {
	req, err := r.request(ex, v)
	if err != nil {
		ex.h.writeError(&ex.w, ex.r, err)
		return
	}
	if r.stream != nil {
		r.callStream(ctx, ex, req)
		return
	}
	var header metadata.MD
	answer := r.output.New().Interface()
	var left *remains.Remains
	if r.verb == "delete" {
		ctx, left = remains.With(ctx)
	}
	err = ex.h.cfg.Conn.Invoke(ctx, r.rpc, req, answer, grpc.Header(&header))
	for _, text := range header[warning.MetadataKey] {
		ex.warnings.Add(text)
	}
	if err != nil {
		ex.refuse(ctx, err)
		return
	}
	if len(header[fieldmanager.MadeKey]) > 0 {
		ex.w.code = http.StatusCreated
	}
	if left != nil && left.Object != nil {
		answer = left.Object
	}
	runtime.ForwardResponseMessage(ctx, ex.h.mux, ex, &ex.w, ex.r, answer)
}

// callStream is call for a method that answers with a stream.
func (r *route) callStream(ctx context.Context, ex *exchange, req proto.Message) {
	stream, err := r.open(ctx, ex.h.cfg.Conn, req)
	if err != nil {
		ex.refuse(ctx, err)
		return
	}
	recv := func() (proto.Message, error) {
		m := r.output.New().Interface()
		return m, stream.RecvMsg(m)
	}
	ctx = runtime.NewServerMetadataContext(ctx, runtime.ServerMetadata{})
	runtime.ForwardResponseStream(ctx, ex.h.mux, ex, &ex.w, ex.r, recv, ex.accept)
}

// open returns a stream that the service has accepted.
func (r *route) open(
	ctx context.Context, conn grpc.ClientConnInterface, req proto.Message,
) (grpc.ClientStream, error) {
	stream, err := conn.NewStream(ctx, r.stream, r.rpc)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(req); err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	header, err := stream.Header()
	if err != nil || header != nil {
		return stream, err
	}
	// Without a header no message comes, only the end, which says why.
	if err := stream.RecvMsg(r.output.New().Interface()); !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, nil
}

// request fills the message of the method from the body, the path and the query.
func (r *route) request(ex *exchange, v values) (proto.Message, error) {
	req := r.input.New()
	if r.body != nil {
		if err := r.decodeBody(ex, req); err != nil {
			return nil, err
		}
	}
	for i, f := range r.variables {
		req.Set(f, protoreflect.ValueOfString(v.list[i]))
	}
	if r.whole != nil && ex.r.URL.RawQuery != "" {
		req.Set(r.whole, protoreflect.ValueOfString(req.Get(r.whole).String()+"?"+ex.r.URL.RawQuery))
	}
	if form := r.form(ex.query); len(form) > 0 {
		if err := runtime.PopulateQueryParameters(req.Interface(), form, everything); err != nil {
			return nil, apierrors.New(apierrors.BadRequest, "%v", err)
		}
	}
	if ex.patchType != "" {
		req.Set(r.patchType, protoreflect.ValueOfString(ex.patchType))
	}
	if r.manager != nil && ex.patchType != negotiate.TypeApplyPatch && !req.Has(r.manager) {
		req.Set(r.manager, protoreflect.ValueOfString(fieldmanager.Program(ex.r.UserAgent())))
	}
	return req.Interface(), nil
}

// decodeBody fills the field that the body is for: the bytes of a patch, or a message.
func (r *route) decodeBody(ex *exchange, req protoreflect.Message) error {
	decoder := ex.NewDecoder(ex.r.Body)
	if r.object == nil {
		var patch []byte
		err := decoder.Decode(&patch)
		req.Set(r.body, protoreflect.ValueOfBytes(patch))
		return err
	}
	o := r.object.New()
	switch err := decoder.Decode(o.Interface()); {
	case errors.Is(err, io.EOF): // there is no body
		return nil
	case err != nil:
		return err
	}
	req.Set(r.body, protoreflect.ValueOfMessage(o))
	return nil
}

var errNotAnExchange = errors.New("rest: the gateway was called from outside the front")

// refuse answers a call that came to nothing.
func (ex *exchange) refuse(ctx context.Context, err error) {
	runtime.HTTPError(ctx, ex.h.mux, ex, &ex.w, ex.r, err)
}

// failed is where the gateway reports every call that came to nothing.
func (h *Handler) failed(
	_ context.Context, _ *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error,
) {
	ex, ok := m.(*exchange)
	if !ok {
		h.writeError(w, r, fmt.Errorf("%w: %w", errNotAnExchange, err))
		return
	}
	ex.fail(err)
}

// streamFailed is where the gateway reports that a stream has broken off. What it returns is encoded as the last words
// of the stream. A stream whose own context has ended is over for the client, too, and needs none.
func streamFailed(ctx context.Context, err error) *status.Status {
	if ctx.Err() != nil {
		return status.FromContextError(context.Canceled)
	}
	return status.Convert(err)
}
