package rest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

var errUnknownMessage = errors.New("rest: a service answered with a message that is neither an object, a list nor a Status")

// answer writes the one message of a call that is not a stream.
func (ex *exchange) answer(m proto.Message) error {
	buffer := ex.h.buffers.Get().(*[]byte)
	defer ex.h.release(buffer)
	b := (*buffer)[:0]
	var err error
	switch m := m.(type) {
	case *metav1.Status:
		b, err = ex.appendStatus(b, m)
	case object.List:
		return ex.answerList(m, buffer)
	case object.Object:
		b, err = ex.appendSingle(b, m)
	default:
		return fmt.Errorf("%w: %T", errUnknownMessage, m)
	}
	if err != nil {
		return err
	}
	if ex.out.Encoding == negotiate.YAML {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
	}
	*buffer = b
	if len(b) > unguarded { // net/http counts what it buffers
		ex.w.Header()["Content-Length"] = []string{strconv.Itoa(len(b))}
	}
	ex.begin(ex.successCode(), ex.out.ContentType())
	_ = ex.guardedWrite(b)
	return nil
}

// successCode is 201 for whatever makes something, as in Kubernetes.
func (ex *exchange) successCode() int {
	if ex.route.method == http.MethodPost {
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
