// Package apierrors is the one error package of the API: an error has a kind, a message, the Kubernetes
// reason and details, and becomes a metav1.Status on the REST wire and a gRPC status (with that Status in
// its details) on the gRPC wire. Servers make errors here; clients ask with the Is functions, whatever
// wire the error came over.
package apierrors

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// Reason is the machine-readable reason of a Status.
type Reason string

// The reasons, with the codes they travel as. They are those of Kubernetes.
const (
	BadRequest            Reason = "BadRequest"
	Unauthorized          Reason = "Unauthorized"
	Forbidden             Reason = "Forbidden"
	NotFound              Reason = "NotFound"
	MethodNotAllowed      Reason = "MethodNotAllowed"
	NotAcceptable         Reason = "NotAcceptable"
	AlreadyExists         Reason = "AlreadyExists"
	Conflict              Reason = "Conflict"
	Expired               Reason = "Expired"
	RequestEntityTooLarge Reason = "RequestEntityTooLarge"
	UnsupportedMediaType  Reason = "UnsupportedMediaType"
	Invalid               Reason = "Invalid"
	TooManyRequests       Reason = "TooManyRequests"
	InternalError         Reason = "InternalError"
	ServiceUnavailable    Reason = "ServiceUnavailable"
	Timeout               Reason = "Timeout"
)

type wire struct {
	http int32
	grpc codes.Code
}

func (r Reason) wire() wire {
	switch r {
	case BadRequest:
		return wire{http.StatusBadRequest, codes.InvalidArgument}
	case Unauthorized:
		return wire{http.StatusUnauthorized, codes.Unauthenticated}
	case Forbidden:
		return wire{http.StatusForbidden, codes.PermissionDenied}
	case NotFound:
		return wire{http.StatusNotFound, codes.NotFound}
	case MethodNotAllowed:
		return wire{http.StatusMethodNotAllowed, codes.Unimplemented}
	case NotAcceptable:
		return wire{http.StatusNotAcceptable, codes.InvalidArgument}
	case AlreadyExists:
		return wire{http.StatusConflict, codes.AlreadyExists}
	case Conflict:
		return wire{http.StatusConflict, codes.Aborted}
	case Expired:
		return wire{http.StatusGone, codes.OutOfRange}
	case RequestEntityTooLarge:
		return wire{http.StatusRequestEntityTooLarge, codes.ResourceExhausted}
	case UnsupportedMediaType:
		return wire{http.StatusUnsupportedMediaType, codes.InvalidArgument}
	case Invalid:
		return wire{http.StatusUnprocessableEntity, codes.InvalidArgument}
	case TooManyRequests:
		return wire{http.StatusTooManyRequests, codes.ResourceExhausted}
	case ServiceUnavailable:
		return wire{http.StatusServiceUnavailable, codes.Unavailable}
	case Timeout:
		return wire{http.StatusGatewayTimeout, codes.DeadlineExceeded}
	default:
		return wire{http.StatusInternalServerError, codes.Internal}
	}
}

// Error is an API error. Make one with the functions of this package.
type Error struct {
	status *metav1.Status
	cause  error
}

// Error returns the message.
func (e *Error) Error() string { return e.status.GetMessage() }

// Unwrap returns the cause, which is logged but never sent.
func (e *Error) Unwrap() error { return e.cause }

// Status returns the error as Kubernetes clients read it. It must not be changed.
func (e *Error) Status() *metav1.Status { return e.status }

// Reason returns the machine-readable reason.
func (e *Error) Reason() Reason { return Reason(e.status.GetReason()) }

// GRPCStatus makes gRPC send the right code, with the Status in the details.
func (e *Error) GRPCStatus() *status.Status {
	s := status.New(e.Reason().wire().grpc, e.status.GetMessage())
	if d, err := s.WithDetails(e.status); err == nil {
		return d
	}
	return s
}

// New returns an error with the given reason and message.
func New(r Reason, format string, args ...any) *Error {
	return &Error{status: &metav1.Status{
		Status: "Failure", Message: fmt.Sprintf(format, args...), Reason: string(r), Code: r.wire().http,
	}}
}

func about(e *Error, k *object.Kind, name string) *Error {
	e.status.Details = &metav1.StatusDetails{Name: name, Group: k.Group, Kind: k.Plural}
	return e
}

// NewNotFound says that an object does not exist.
func NewNotFound(k *object.Kind, name string) *Error {
	return about(New(NotFound, "%s %q not found", k.Resource(), name), k, name)
}

// NewAlreadyExists says that a name is taken.
func NewAlreadyExists(k *object.Kind, name string) *Error {
	return about(New(AlreadyExists, "%s %q already exists", k.Resource(), name), k, name)
}

// NewConflict says that a write lost against another, or that a precondition does not hold.
func NewConflict(k *object.Kind, name, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	return about(New(Conflict, "Operation cannot be fulfilled on %s %q: %s", k.Resource(), name, msg), k, name)
}

// NewForbidden says that the identity may not do this, or that the object's state forbids it. No name means many
// objects, or one that has none yet.
func NewForbidden(k *object.Kind, name, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	if name == "" {
		return about(New(Forbidden, "%s is forbidden: %s", k.Resource(), msg), k, name)
	}
	return about(New(Forbidden, "%s %q is forbidden: %s", k.Resource(), name, msg), k, name)
}

// Cause is one bad field. Type is a Kubernetes cause such as "FieldValueInvalid", "FieldValueRequired",
// "FieldValueNotSupported", "FieldValueDuplicate", "FieldValueForbidden" or "FieldValueTooLong".
type Cause struct {
	Type, Field, Message string
}

// NewInvalid lists every bad field of an object.
func NewInvalid(k *object.Kind, name string, causes []Cause) *Error {
	var msg strings.Builder
	for i, c := range causes {
		if i > 0 {
			msg.WriteString(", ")
		}
		msg.WriteString(c.Field + ": " + c.Message)
	}
	text := msg.String()
	if len(causes) > 1 {
		text = "[" + text + "]"
	}
	e := New(Invalid, "%s %q is invalid: %s", k.Kind, name, text)
	if k.Group != "" {
		e = New(Invalid, "%s.%s %q is invalid: %s", k.Kind, k.Group, name, text)
	}
	d := &metav1.StatusDetails{Name: name, Group: k.Group, Kind: k.Kind}
	for _, c := range causes {
		d.Causes = append(d.Causes, &metav1.StatusCause{Reason: c.Type, Message: c.Message, Field: c.Field})
	}
	e.status.Details = d
	return e
}

// NewInternal hides cause from the client; the caller of the handler logs it.
func NewInternal(cause error) *Error {
	e := New(InternalError, "Internal error occurred; the server's log has the details")
	e.cause = cause
	return e
}

// WithRetryAfter adds the number of seconds after which the client should try again.
func (e *Error) WithRetryAfter(seconds int32) *Error {
	if e.status.Details == nil {
		e.status.Details = &metav1.StatusDetails{}
	}
	e.status.Details.RetryAfterSeconds = seconds
	return e
}

// WithCause adds a machine-readable cause.
func (e *Error) WithCause(c Cause) *Error {
	if e.status.Details == nil {
		e.status.Details = &metav1.StatusDetails{}
	}
	e.status.Details.Causes = append(e.status.Details.Causes,
		&metav1.StatusCause{Reason: c.Type, Message: c.Message, Field: c.Field})
	return e
}

// From returns err as an API error: as it is, or rebuilt from a gRPC status that carries one, or made from
// the bare gRPC code. Any other error becomes InternalError with err as its cause.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	s, ok := status.FromError(err)
	if !ok {
		return NewInternal(err)
	}
	for _, d := range s.Details() {
		if st, ok := d.(*metav1.Status); ok {
			return &Error{status: st, cause: err}
		}
	}
	e = New(reasonOf(s.Code()), "%s", s.Message())
	e.cause = err
	return e
}

// Text returns what people are told of err: what a server has said in its words alone, and any other error as it is.
func Text(err error) string {
	if _, ok := status.FromError(err); ok {
		return From(err).Error()
	}
	return err.Error()
}

// FromStatus returns a Status that was received, such as that of an ERROR event, as an error.
func FromStatus(s *metav1.Status) *Error {
	if s == nil {
		return New(InternalError, "the server sent an error without a status")
	}
	return &Error{status: s}
}

// PanicText returns what a log may say of the value of a panic: the text of a string or an error, and else only the
// type. A value of another type may be, or hold, an object of the API, such as a Secret.
func PanicText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case error:
		return v.Error()
	default:
		return fmt.Sprintf("a value of type %T", v)
	}
}

func reasonOf(c codes.Code) Reason {
	switch c {
	case codes.InvalidArgument:
		return BadRequest
	case codes.Unauthenticated:
		return Unauthorized
	case codes.PermissionDenied:
		return Forbidden
	case codes.NotFound:
		return NotFound
	case codes.Unimplemented:
		return MethodNotAllowed
	case codes.AlreadyExists:
		return AlreadyExists
	case codes.Aborted:
		return Conflict
	case codes.OutOfRange:
		return Expired
	case codes.ResourceExhausted:
		return RequestEntityTooLarge
	case codes.Unavailable:
		return ServiceUnavailable
	case codes.DeadlineExceeded:
		return Timeout
	default:
		return InternalError
	}
}

// Is reports whether err, from either wire, has reason r.
func Is(err error, r Reason) bool {
	return err != nil && From(err).Reason() == r
}

// NamespaceGoes says whether something could not be made because its namespace is being deleted, or gone: nothing is
// to be made there any more.
func NamespaceGoes(err error) bool {
	return slices.ContainsFunc(From(err).Status().GetDetails().GetCauses(), func(c *metav1.StatusCause) bool {
		return c.GetReason() == "NamespaceTerminating"
	})
}

// OtherObject reports whether err, from either wire, is the refusal of a patch that names another uid than that of the
// object: the one that was meant has gone, and another has its name. As in Kubernetes the reason is Invalid.
func OtherObject(err error) bool {
	if !Is(err, Invalid) {
		return false
	}
	return slices.ContainsFunc(From(err).Status().GetDetails().GetCauses(), func(c *metav1.StatusCause) bool {
		return c.GetField() == "metadata.uid"
	})
}
