package rest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/warning"
)

// The end of a watch without timeoutSeconds is chosen at random between these, so that the watches of many
// clients do not all begin again at once.
const (
	minWatch = 30 * time.Minute
	maxWatch = 60 * time.Minute
)

// serveResource checks all that can be known before the body is read, then lets the gateway call the service.
func (h *Handler) serveResource(w http.ResponseWriter, r *http.Request, routes map[string]*route, v values) {
	ex, query, err := h.prepare(w, r, routes)
	if err != nil {
		h.writeError(w, r, err)
		return
	}
	if ex == nil {
		h.notAllowed(w, r, allowed(routes))
		return
	}
	if !ex.route.stream {
		if h.inFlight.Add(1) > int64(h.cfg.MaxInFlight) {
			h.inFlight.Add(-1)
			h.writeError(w, r, apierrors.New(apierrors.TooManyRequests,
				"too many requests at once, please try again later").WithRetryAfter(1))
			return
		}
		defer h.inFlight.Add(-1)
	}
	defer ex.aborted()
	ctx, cancel := ex.context(r.Context(), query)
	defer cancel()
	parameters := h.parameters.Get().(map[string]string)
	ex.route.handler(ex, ex.gatewayRequest(ctx, query), ex.route.parameters(parameters, v))
	clear(parameters)
	h.parameters.Put(parameters)
}

// prepare chooses the route and negotiates. It returns nil and no error when the method is not allowed.
func (h *Handler) prepare(w http.ResponseWriter, r *http.Request, routes map[string]*route) (*exchange, url.Values, error) {
	rt := routes[r.Method]
	if rt == nil {
		return nil, nil, nil
	}
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, nil, err
	}
	if rt.verb == "list" && query.Has("watch") && isTrue(query.Get("watch")) {
		if rt = rt.watch; rt == nil {
			return nil, nil, nil
		}
	}
	ex := &exchange{h: h, w: w, r: r, route: rt, validation: query.Get("fieldValidation")}
	if !rt.logs {
		var ok bool
		if ex.out, ok = negotiate.Accept(r.Header["Accept"], negotiate.Offers{Stream: rt.stream}); !ok {
			return nil, nil, notAcceptable(rt)
		}
	}
	if ex.out.Form == negotiate.Table {
		var ok bool
		if ex.include, ok = table.ParseInclude(query.Get("includeObject")); !ok {
			return nil, nil, apierrors.New(apierrors.BadRequest,
				"includeObject: %q is not one of None, Metadata, Object", query.Get("includeObject"))
		}
	}
	if err := ex.checkBody(); err != nil {
		return nil, nil, err
	}
	return ex, query, nil
}

// context bounds the request in time and puts in place what the service and the stream handlers look for.
func (ex *exchange) context(ctx context.Context, query url.Values) (context.Context, context.CancelFunc) {
	ctx, ex.warnings = warning.WithCollector(ctx)
	if !ex.route.stream {
		return context.WithTimeout(ctx, requestTimeout(query, ex.h.cfg.RequestTimeout))
	}
	ctx = context.WithValue(ctx, exchangeKey{}, ex)
	var cancel context.CancelFunc
	if ex.route.logs {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, watchTimeout(query))
	}
	stop := context.AfterFunc(ex.h.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

// requestTimeout is what the client asks for (kubectl --request-timeout), within what the server allows.
func requestTimeout(query url.Values, limit time.Duration) time.Duration {
	if text := query.Get("timeout"); text != "" {
		if d, err := time.ParseDuration(text); err == nil && d > 0 && d < limit {
			return d
		}
	}
	return limit
}

func watchTimeout(query url.Values) time.Duration {
	if s, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 32); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	return minWatch + rand.N(maxWatch-minWatch)
}

// gatewayRequest is the request as the generated handlers may see it: without headers, so that none becomes
// gRPC metadata, with the query reduced to what it may set, and with a body that decodes itself.
func (ex *exchange) gatewayRequest(ctx context.Context, query url.Values) *http.Request {
	r := ex.r.WithContext(ctx)
	r.Header, r.Host, r.RemoteAddr, r.Body = nil, "", "", nil
	r.Form, r.PostForm = ex.h.noForm, ex.h.noForm
	if len(query) > 0 {
		r.Form = ex.route.form(query)
	}
	if ex.patchType != "" {
		if len(query) == 0 {
			r.Form = make(url.Values, 1)
		}
		r.Form["patchType"] = []string{ex.patchType}
	}
	if ex.route.body != "" {
		r.Body = body{ex}
	}
	return r
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
