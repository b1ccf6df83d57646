package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

var errUnknownMessage = errors.New(
	"rest: a service answered with a message that is neither an object, a list nor a Status")

// ContentType is that of the answer. Only text may say itself what it is.
func (ex *exchange) ContentType(v any) string {
	switch {
	case ex.route.text:
		if body, ok := v.(*httpbody.HttpBody); ok && ex.route.typed {
			return body.GetContentType()
		}
		return "text/plain"
	case ex.route.stream != nil:
		return ex.out.StreamContentType()
	default:
		return ex.out.ContentType()
	}
}

// Marshal encodes what the gateway has: the one message of a call, or what it makes of a stream's messages and its end
// (see stream.go). The bytes are good until the next call.
func (ex *exchange) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case proto.Message:
		return ex.encode(v)
	case map[string]any:
		return ex.encodeEvents(v["result"])
	case map[string]proto.Message:
		return ex.encodeEnd(v["error"])
	default:
		return nil, fmt.Errorf("%w: %T", errUnknownMessage, v)
	}
}

// NewEncoder returns what writes to w what Marshal encodes.
func (ex *exchange) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		b, err := ex.Marshal(v)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
}

// encode encodes the one message of a call.
func (ex *exchange) encode(m proto.Message) (b []byte, err error) {
	ex.buffer = ex.h.buffers.Get().(*[]byte)
	b = (*ex.buffer)[:0]
	switch m := m.(type) {
	case *metav1.Status:
		b, err = ex.appendStatus(b, m)
	case object.List:
		b, err = ex.appendList(b, m)
	case object.Object:
		b, err = ex.appendSingle(b, m)
	default:
		return nil, fmt.Errorf("%w: %T", errUnknownMessage, m)
	}
	if err == nil && ex.out.Encoding == negotiate.YAML {
		if b, err = yaml.JSONToYAML(b); err != nil {
			err = fmt.Errorf("write YAML: %w", err)
		}
	}
	if err == nil && ex.pretty() {
		b = indented(b)
	}
	*ex.buffer = b
	return b, err
}

// successCode is 201 for whatever makes something, as in Kubernetes.
func (r *route) successCode() int {
	if r.method == http.MethodPost {
		return http.StatusCreated
	}
	return http.StatusOK
}

// stored says whether the objects of the answer are revisions as they are stored, and not the outcome of a
// write, which may be a dry run.
func (ex *exchange) stored() bool { return ex.route.method == http.MethodGet }

// appendSingle appends an object in the negotiated form.
func (ex *exchange) appendSingle(b []byte, o object.Object) ([]byte, error) {
	var err error
	switch {
	case ex.out.Form == negotiate.Table:
		meta := &metav1.ListMeta{ResourceVersion: o.GetMetadata().GetResourceVersion()}
		t := ex.newTable(o.ObjectKind())
		b = t.appendRow(t.appendHead(b, meta), o, false)
		b = append(b, "]}"...)
	case ex.out.Encoding == negotiate.Protobuf:
		b, err = ex.h.appendProtobuf(b, o, ex.out.Form, false, ex.stored())
	default:
		b = ex.h.appendJSON(b, o, ex.out.Form, false, ex.stored())
	}
	if ex.out.Encoding != negotiate.Protobuf {
		b = append(b, '\n')
	}
	return b, err
}

func (ex *exchange) appendStatus(b []byte, st *metav1.Status) ([]byte, error) {
	if ex.out.Encoding == negotiate.Protobuf {
		return codec.AppendProtobuf(b, st)
	}
	return append(codec.AppendObject(b, st), '\n'), nil
}

// maxPooled is the largest buffer that is kept for later requests.
const maxPooled = 1 << 20

// release gives a buffer back, unless it has grown so much that keeping it would waste memory.
func (h *Handler) release(buffer *[]byte) {
	if cap(*buffer) <= maxPooled {
		h.buffers.Put(buffer)
	}
}
