package apiserver

import (
	"net/http"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/metering"
	"monoplane.dev/apiserver/patch"
)

// operations count the calls of a method: those of one object or of all namespaces, those of a namespace, and those
// that apply.
type operations struct{ plain, namespace, apply *metering.Operation }

// meter makes what counts the calls of a method, with the labels of Kubernetes.
func (m *method) meter(meter *metering.Meter) {
	a, stream := &m.attributes, m.stream
	l := metering.Labels{
		Verb: metering.Verb(a.Verb, stream && a.Verb != "watch"), Group: a.Group, Version: m.version,
		Resource: a.Resource, Subresource: a.Subresource, Scope: metering.OfResource,
	}
	switch a.Verb {
	case "list", "watch", "deletecollection":
		l.Scope = metering.OfNamespace
		m.operations.namespace = meter.Operation(l, stream)
		l.Scope = metering.OfCluster
	case "patch":
		l.Verb = "APPLY"
		m.operations.apply = meter.Operation(l, stream)
		l.Verb = "PATCH"
	case "get", "create", "update", "delete":
	default: // what Kubernetes has not
		l.Verb, l.Subresource = "POST", a.Verb
		if stream {
			l.Verb = "CONNECT"
		}
	}
	m.operations.plain = meter.Operation(l, stream)
	m.code = http.StatusOK
	switch {
	case l.Verb == "CONNECT" && a.Verb == "create":
		m.code = http.StatusSwitchingProtocols
	case l.Verb == "POST":
		m.code = http.StatusCreated
	}
}

// operation returns what counts a call; req is nil for a stream that has asked for nothing yet.
func (m *method) operation(req any) *metering.Operation {
	o := &m.operations
	if o.apply != nil {
		if r, ok := req.(interface{ GetPatchType() string }); ok && r.GetPatchType() == string(patch.Apply) {
			return o.apply
		}
	}
	if o.namespace != nil {
		if r, ok := req.(interface{ GetNamespace() string }); ok && r.GetNamespace() != "" {
			return o.namespace
		}
	}
	return o.plain
}

// answer is what REST would have answered to a call.
func (m *method) answer(req any, err error) metering.Answer {
	a := metering.Answer{Code: m.code, Size: -1}
	if err != nil {
		a.Code = int(apierrors.From(err).Status().GetCode())
	}
	if r, ok := req.(interface{ GetDryRun() []string }); ok {
		a.DryRun = len(r.GetDryRun()) > 0
	}
	return a
}

// begin counts a call that is served at once.
func (m *method) begin(req any) metering.Request {
	r := m.operation(req).Begin()
	r.Seated()
	return r
}
