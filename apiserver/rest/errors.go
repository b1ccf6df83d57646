package rest

import (
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec"
	"monoplane.dev/object"
)

// writeError answers with err as a metav1.Status, in protobuf when the client prefers that. What went wrong
// inside the server is logged, not sent.
func (h *Handler) writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := apierrors.From(err)
	if e.Reason() == apierrors.InternalError {
		h.logError(r, e)
	}
	st := e.Status()
	if h.cfg.Audit != nil {
		audit.From(r.Context()).Failed(st)
	}
	header := w.Header()
	if s := st.GetDetails().GetRetryAfterSeconds(); s > 0 {
		header.Set("Retry-After", strconv.Itoa(int(s)))
	}
	code := int(st.GetCode())
	if code < 100 || code > 599 {
		code = http.StatusInternalServerError
	}
	out, _ := negotiate.Accept(r.Header["Accept"], negotiate.Offers{})
	var b []byte
	if out.Encoding == negotiate.Protobuf {
		if b, err = codec.AppendProtobuf(nil, st); err != nil {
			out.Encoding = negotiate.JSON
		}
	}
	if out.Encoding != negotiate.Protobuf {
		out.Encoding = negotiate.JSON
		b = append(codec.AppendObject(nil, st), '\n')
		if pretty(r) {
			b = indented(b)
		}
	}
	header.Set("Content-Type", out.Encoding.String())
	header.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b)
	}
}

func (h *Handler) logError(r *http.Request, e *apierrors.Error) {
	h.cfg.Logger.ErrorContext(r.Context(), "request failed inside the server",
		"method", r.Method, "path", r.URL.Path, "error", e.Error(), "cause", e.Unwrap())
}

func (h *Handler) logPanic(r *http.Request, v any) {
	if h.cfg.Audit != nil {
		audit.From(r.Context()).Panicked()
	}
	h.cfg.Logger.ErrorContext(r.Context(), "request handler panicked",
		"method", r.Method, "path", r.URL.Path, "panic", apierrors.PanicText(v), "stack", string(debug.Stack()))
}

// requireUser refuses requests without credentials, and those of users who act as somebody without.
func requireUser(r *http.Request) error {
	u := authn.UserFrom(r.Context())
	switch {
	case u == nil || slices.Contains(u.Groups, authn.UnauthenticatedGroup) && u.Impersonator == nil:
		return apierrors.New(apierrors.Unauthorized, "Unauthorized")
	case slices.Contains(u.Groups, authn.UnauthenticatedGroup):
		return auth.Denied(auth.Of(u), auth.Attributes{Verb: strings.ToLower(r.Method), Path: r.URL.Path}, "")
	default:
		return nil
	}
}

func (h *Handler) notAllowed(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	h.writeError(w, r, apierrors.New(apierrors.MethodNotAllowed,
		"the server does not allow this method on the requested resource"))
}

func notAcceptable(rt *route) error {
	list := []string{negotiate.TypeJSON, negotiate.TypeYAML, negotiate.TypeProtobuf}
	if rt.stream != nil {
		list = []string{negotiate.TypeJSONStream, negotiate.TypeProtobufStream}
	}
	return apierrors.New(apierrors.NotAcceptable, "only the following media types are accepted: %s",
		strings.Join(list, ", "))
}

func unsupportedMediaType(rt *route) error {
	list := []string{negotiate.TypeJSON, negotiate.TypeYAML, negotiate.TypeProtobuf}
	if rt.method == http.MethodPatch {
		list = []string{
			negotiate.TypeJSONPatch, negotiate.TypeMergePatch, negotiate.TypeStrategicPatch, negotiate.TypeApplyPatch,
		}
	}
	return apierrors.New(apierrors.UnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: %s", strings.Join(list, ", "))
}

func tooLarge() error {
	return apierrors.New(apierrors.RequestEntityTooLarge, "Request entity too large: limit is %d", MaxBody)
}

// badFieldValidation refuses a way of validating that there is not.
func badFieldValidation(rt *route, got string) error {
	options := map[string]string{"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}[rt.verb]
	return validation.InvalidOptions(options, validation.WriteOptions(object.WriteOptions{FieldValidation: got}))
}

// initialEventsOfList refuses what watches have, and lists have not.
func initialEventsOfList() error {
	return validation.InvalidOptions("ListOptions", []apierrors.Cause{{Type: "FieldValueForbidden",
		Field: "sendInitialEvents", Message: "Forbidden: sendInitialEvents is forbidden for list"}})
}
