package rest

import (
	"net/http"
	"slices"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/apiserver/metering"
	"monoplane.dev/apiserver/rest/compress"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/rest/upgrade"
	"monoplane.dev/apiserver/table"
)

// serveResource answers a request for objects: negotiate, then call. All that can be known before the body is read is
// checked in negotiate.
func (h *Handler) serveResource(w http.ResponseWriter, r *http.Request, routes map[string]*route, v values) {
	rt := routes[r.Method]
	if get := routes[http.MethodGet]; rt == nil && get != nil && get.proxies {
		rt = get // Pods answer methods that the API has not.
	}
	if rt != nil && rt.proxies {
		h.serveProxy(w, r, rt, v)
		return
	}
	if rt != nil && rt.conversation != nil {
		h.serveConversation(w, r, rt, v)
		return
	}
	ex, err := h.negotiate(w, r, routes)
	switch {
	case err != nil:
		h.writeError(w, r, err)
		refused := rt.operation.Begin()
		refused.End(metering.Answer{Code: int(apierrors.From(err).Status().GetCode()), Size: -1})
		return
	case ex == nil:
		h.notAllowed(w, r, allowed(routes))
		return
	}
	request := ex.operation().Begin()
	defer func() { request.End(ex.answered()) }()
	seat, err := h.seat(r, ex.route)
	if err != nil {
		h.writeError(w, r, err)
		ex.w.code = int(apierrors.From(err).Status().GetCode())
		return
	}
	defer seat.Release()
	request.Seated()
	defer ex.aborted()
	ctx, cancel := ex.context(r.Context())
	defer cancel()
	if ex.route.stream != nil && upgrade.IsWebSocket(r) {
		socket, err := upgrade.NewOneWay(w, r, ex.content(), func(error) { cancel() })
		if err != nil {
			ex.fail(err)
			return
		}
		ex.w.ResponseWriter = socket
		defer socket.Close()
	}
	ex.route.call(ctx, ex, v)
	if ex.route.stream != nil {
		ex.w.WriteHeader(ex.w.code) // of a stream that had nothing to say
	}
	ex.end()
}

// content says what the answer streams.
func (ex *exchange) content() upgrade.Content {
	switch {
	case ex.route.text:
		return upgrade.Text
	case ex.out.Encoding == negotiate.Protobuf:
		return upgrade.Delimited
	default:
		return upgrade.Lines
	}
}

// operation returns what counts the request.
func (ex *exchange) operation() *metering.Operation {
	if ex.patchType == negotiate.TypeApplyPatch {
		return ex.route.apply
	}
	return ex.route.operation
}

// seat bounds how many requests are served at once, and how many streams there are, of all users and of each.
func (h *Handler) seat(r *http.Request, rt *route) (fair.Seat, error) {
	if rt.stream != nil {
		return h.cfg.Limits.AcquireLong(fair.User(r.Context()))
	}
	return h.cfg.Limits.Acquire(r.Context(), fair.User(r.Context()))
}

// negotiate chooses the route and the forms of body and answer. It returns nil and no error when the method is not
// allowed.
func (h *Handler) negotiate(w http.ResponseWriter, r *http.Request, routes map[string]*route) (*exchange, error) {
	rt := routes[r.Method]
	if rt == nil {
		return nil, nil
	}
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if rt.verb == "list" && query.Has("watch") && isTrue(query.Get("watch")) {
		if rt = rt.watch; rt == nil {
			return nil, nil
		}
	}
	if rt.verb == "list" && rt.stream == nil && query.Get("sendInitialEvents") != "" {
		return nil, initialEventsOfList()
	}
	ex := &exchange{h: h, r: r, route: rt, query: query, validation: query.Get("fieldValidation")}
	ex.w = writer{ResponseWriter: w, code: rt.successCode(), stall: h.cfg.StallTimeout}
	if rt.stream == nil && compress.Pays(r) {
		ex.w.pool = &h.packers
	}
	if !rt.text {
		var ok bool
		if ex.out, ok = negotiate.Accept(r.Header["Accept"], negotiate.Offers{Stream: rt.stream != nil,
			NoTable: !rt.tabled()}); !ok {
			return nil, notAcceptable(rt)
		}
	}
	if ex.out.Form == negotiate.Table {
		var ok bool
		if ex.include, ok = table.ParseInclude(query.Get("includeObject")); !ok {
			return nil, apierrors.New(apierrors.BadRequest,
				"includeObject: %q is not one of None, Metadata, Object", query.Get("includeObject"))
		}
	}
	return ex, ex.checkBody()
}

// allowed lists the methods of a path for the Allow header.
func allowed(routes map[string]*route) string {
	var list []string
	for m := range routes {
		list = append(list, m)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
