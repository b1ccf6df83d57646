package audit

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Annotations of events. The first two are Kubernetes'.
const (
	annotationDecision = "authorization.k8s.io/decision"
	annotationReason   = "authorization.k8s.io/reason"
	// annotationAct names what is recorded whatever the policy says.
	annotationAct = "audit.monoplane.dev/act"
	// annotationLost is how many events are missing before this one.
	annotationLost = "audit.monoplane.dev/lost"
)

// maxUserAgent is the most bytes of a client's name for itself.
const maxUserAgent = 1024

// Record is a request on its way. It is safe for concurrent use, and a nil one does nothing.
//
//	begun ─Received─▶ received ─Started─▶ answered in part ─┬─Complete─▶ complete
//	  │                   └───────────────────────────────────┤
//	  │                                                       └─Panicked, Complete─▶ panic
//	  └─Complete, without a user─▶ refused
//
// Each arrow to the right writes the event of its stage, unless the policy leaves it out.
type Record struct {
	log   *Log
	begun time.Time

	mu       sync.Mutex
	event    event
	decision Decision
	lasts    bool
	// received says that the policy has decided; started and complete that the events were written.
	received, started, complete bool
	panicked                    bool
	// told says that a client of HTTP knows the code of the answer, which nothing that follows changes.
	told       bool
	attributes Attributes
	// act is what must be recorded, empty mostly.
	act string
	// failure is what was answered to a request that failed.
	failure *metav1.Status
}

type recordKey struct{}

// From returns the record of the request that ctx belongs to, nil when there is none.
func From(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// Source is where a request comes from.
type Source struct {
	// URI is the path and query, or the method of gRPC.
	URI string
	// Address is the client's IP address, empty in-process.
	Address string
	// UserAgent is the client's name for itself.
	UserAgent string
}

// Begin begins the record of a request. The context that it returns has it.
func (l *Log) Begin(ctx context.Context, from Source, a Attributes) (context.Context, *Record) {
	r := &Record{log: l, begun: l.now(), event: newEvent(newID()), attributes: a, lasts: a.lasts()}
	e := &r.event
	e.RequestURI, e.Verb, e.UserAgent = from.URI, a.Verb, from.UserAgent
	if len(e.UserAgent) > maxUserAgent {
		e.UserAgent = e.UserAgent[:maxUserAgent] + "...TRUNCATED"
	}
	if from.Address != "" {
		e.SourceIPs = []string{from.Address}
	}
	e.RequestReceived = timestamp(r.begun)
	if a.Objects {
		e.ObjectRef = &objectRef{
			Resource: a.Resource, Namespace: a.Namespace, Name: a.Name, APIGroup: a.Group, APIVersion: a.Version,
			Subresource: a.Subresource,
		}
	}
	return context.WithValue(ctx, recordKey{}, r), r
}

// ID is what the client is told.
func (r *Record) ID() string { return r.event.AuditID }

// Who notes who asks to act as somebody else, which may be refused.
func (r *Record) Who(u *authn.User) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attributes.User, r.event.User = u, describe(u)
}

// Received notes whose request it is. Who acts as somebody else is judged by what he really is.
func (r *Record) Received(u *authn.User) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u != nil && u.Impersonator != nil {
		as := describe(u)
		r.event.ImpersonatedUser = &as
		r.attributes.User, r.event.User = u.Impersonator, describe(u.Impersonator)
		r.mustRecord("impersonation")
	} else if u != nil {
		r.attributes.User, r.event.User = u, describe(u)
	}
	r.decide()
	r.write(StageRequestReceived)
}

func (r *Record) decide() {
	r.received = true
	r.decision = r.log.policy.Decide(&r.attributes)
	if r.act != "" {
		r.raise()
	}
}

// Act notes that the request does what must be recorded: forced-deletion, break-glass, exec, attach, portforward.
func (r *Record) Act(what string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustRecord(what)
	if r.received {
		r.raise()
	}
}

func (r *Record) mustRecord(what string) {
	if r.act != "" && r.act != what {
		what = r.act + "," + what
	}
	r.act = what
	r.annotate(annotationAct, what)
}

// raise makes sure that the end of the request is written.
func (r *Record) raise() {
	if r.decision.Level == LevelNone {
		r.decision.Level = LevelMetadata
	}
	r.decision.Omit = slices.DeleteFunc(slices.Clone(r.decision.Omit), func(s Stage) bool {
		return s == StageResponseComplete || s == StagePanic
	})
}

// annotate makes a new map: the old one may be on its way to the log.
func (r *Record) annotate(key, value string) {
	m := make(map[string]string, len(r.event.Annotations)+1)
	for k, v := range r.event.Annotations {
		m[k] = v
	}
	m[key] = value
	r.event.Annotations = m
}

// Annotate notes something that a rule of the server has to say about the request, in the words of Kubernetes.
func (r *Record) Annotate(key, value string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.annotate(key, value)
}

// Judged notes what the authorizer has said; reason may be empty.
func (r *Record) Judged(allowed bool, reason string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	decision := "forbid"
	if allowed {
		decision = "allow"
	}
	r.annotate(annotationDecision, decision)
	r.annotate(annotationReason, reason)
}

// Request notes the message of a request: its object, its patch or its options, if the policy wants them.
func (r *Record) Request(m any) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.received || r.decision.Level == LevelNone {
		return
	}
	body := bodyOf(m)
	r.refer(body)
	if r.decision.Level != LevelRequest && r.decision.Level != LevelRequestResponse {
		return
	}
	if body != nil {
		r.event.RequestObject = written(body, r.decision.OmitManagedFields)
	} else if p, ok := m.(interface{ GetPatch() []byte }); ok && r.attributes.Resource != "secrets" {
		r.event.RequestObject = patch(p.GetPatch())
	}
}

// bodyOf returns the object or the options of a request, nil when it has none.
func bodyOf(m any) proto.Message {
	message, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	reflected := message.ProtoReflect()
	for _, name := range []string{"object", "options"} {
		f := reflected.Descriptor().Fields().ByTextName(name)
		if f != nil && f.Message() != nil && !f.IsList() && !f.IsMap() && reflected.Has(f) {
			return reflected.Get(f).Message().Interface()
		}
	}
	return nil
}

// refer completes what the event says of its object.
func (r *Record) refer(body proto.Message) {
	o, ok := body.(object.Object)
	if !ok || r.event.ObjectRef == nil {
		return
	}
	ref, m := *r.event.ObjectRef, o.GetMetadata()
	for _, x := range []struct {
		to    *string
		value string
	}{
		{&ref.Namespace, m.GetNamespace()}, {&ref.Name, m.GetName()}, {&ref.UID, m.GetUid()},
		{&ref.ResourceVersion, m.GetResourceVersion()},
	} {
		if *x.to == "" {
			*x.to = x.value
		}
	}
	r.event.ObjectRef = &ref
}

// Response notes what a service has answered.
func (r *Record) Response(m any, err error) {
	if r == nil {
		return
	}
	if err != nil {
		r.Failed(apierrors.From(err).Status())
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if message, ok := m.(proto.Message); ok && r.decision.Level == LevelRequestResponse {
		r.event.ResponseObject = written(message, r.decision.OmitManagedFields)
	}
}

// Failed notes what is answered to a request that failed. What fails behind the header of an answer over HTTP, such as
// the last connection of a client that has hung up, is not the answer: that is the header's code, as in Kubernetes.
func (r *Record) Failed(s *metav1.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told && !r.panicked {
		return
	}
	r.failure = s
}

// Panicked notes that the request made the server panic.
func (r *Record) Panicked() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panicked = true
}

// Started notes that the answer begins, with a code of HTTP.
func (r *Record) Started(code int) { r.start(code, false) }

// start notes the beginning of the answer; told says that the client of HTTP is given its code with it.
func (r *Record) start(code int, told bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = r.told || told
	r.answer(code)
	if r.received && r.lasts && !r.started && !r.complete {
		r.started = true
		r.write(StageResponseStarted)
	}
}

// Complete notes the end of the request. A second end is none.
func (r *Record) Complete(code int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.complete {
		return
	}
	r.complete = true
	r.answer(code)
	switch {
	case r.panicked:
		if !r.received {
			r.decide()
		}
		r.write(StagePanic)
	case r.received:
		r.write(StageResponseComplete)
	default: // Kubernetes writes a request of somebody unknown so
		r.decide()
		r.write(StageResponseStarted)
	}
}

// answer notes the outcome. The status of a failure has more to say than its code.
func (r *Record) answer(code int) {
	if r.failure != nil {
		s := r.failure.Shallow()
		if s.Metadata == nil {
			s.Metadata = &metav1.ListMeta{}
		}
		r.event.ResponseStatus = s.AppendJSON(nil)
		return
	}
	r.event.ResponseStatus = success(code)
}

// write hands an event to the log.
func (r *Record) write(s Stage) {
	if r.decision.Level == LevelNone || slices.Contains(r.decision.Omit, s) {
		return
	}
	e := r.event
	e.Level, e.Stage, e.StageTime = r.decision.Level, s, timestamp(r.log.now())
	r.log.add(e.line(), e.AuditID, r.act)
}
