package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/gate"
	"monoplane.dev/apiserver/rest/bodycache"
	"monoplane.dev/apiserver/rest/compress"
	"monoplane.dev/apiserver/rest/discovery"
	"monoplane.dev/apiserver/rest/openapi"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/tokens"
	"monoplane.dev/object"
)

// Handler is the REST front. It is safe for concurrent use. Make one with New; Close ends its streams.
type Handler struct {
	cfg       Config
	router    router
	discovery *discovery.Documents
	openapi   *openapi.Documents
	health    *health
	version   []byte
	tables    map[*object.Kind]tableDefinition
	cache     *bodycache.Cache
	// mux is what the gateway's run time asks for.
	mux *runtime.ServeMux
	// buffers holds *[]byte, packers what compresses long answers.
	buffers sync.Pool
	packers compress.Pool

	// closing ends when Close is called.
	closing context.Context
	close   context.CancelFunc

	// noCache and noSniff are values of headers; they are shared by all answers and never changed.
	noCache, noSniff []string
}

type tableDefinition struct {
	table.Definition
	columns []table.Column
}

// New makes the front.
func New(cfg Config) (*Handler, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	h := &Handler{
		cfg: cfg, cache: bodycache.New(cfg.CacheBytes), tables: make(map[*object.Kind]tableDefinition),
		noCache: []string{"no-cache, private"}, noSniff: []string{"nosniff"},
	}
	h.mux = h.newMux()
	h.buffers.New = func() any { b := make([]byte, 0, 16<<10); return &b }
	h.closing, h.close = context.WithCancel(context.Background())
	var routes []*route
	for _, s := range cfg.Services {
		list, err := routesOf(s)
		if err != nil {
			return nil, fmt.Errorf("rest: %w", err)
		}
		routes = append(routes, list...)
		h.tables[s.Kind] = h.tableOf(s.Kind)
	}
	for _, r := range routes { // parts that are shown as another kind, such as a Scale
		if k := r.kind(); h.tables[k].Definition == nil && cfg.Table != nil && cfg.Table(k) != nil {
			h.tables[k] = h.tableOf(k)
		}
	}
	linkWatches(routes)
	for _, r := range routes {
		r.meter(cfg.Meter)
	}
	for _, r := range routes {
		if err := h.router.add(r.method, r.template, r); err != nil {
			return nil, err
		}
	}
	var err error
	if h.discovery, err = discovery.New(resources(routes)); err != nil {
		return nil, err
	}
	h.openapi = openapi.New(operations(routes), cfg.Version)
	if h.version, err = versionInfo(cfg.Version); err != nil {
		return nil, err
	}
	h.health = &health{
		live: cfg.Live, ready: cfg.Ready, logger: cfg.Logger, result: cfg.Health, told: map[string]bool{},
		passing: map[string]bool{},
	}
	return h, nil
}

// Close ends all streams (watches and logs), so that a server can shut down. Other requests are served on.
func (h *Handler) Close() { h.close() }

func (h *Handler) tableOf(kind *object.Kind) tableDefinition {
	var d table.Definition
	if h.cfg.Table != nil {
		d = h.cfg.Table(kind)
	}
	if d == nil {
		d = table.Default{}
	}
	return tableDefinition{d, d.Columns()}
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = deepen(0)
	if h.cfg.Audit != nil {
		var answer *audit.Answer
		answer, r = h.cfg.Audit.HTTP(w, r)
		w = answer
		defer answer.End()
	}
	defer h.recovered(w, r)
	header := w.Header()
	header["Cache-Control"] = h.noCache
	header["X-Content-Type-Options"] = h.noSniff
	if h.servePublic(w, r) {
		return
	}
	if r = h.cfg.Authenticate(w, r); r == nil {
		return
	}
	h.recordUser(r.Context(), authn.UserFrom(r.Context()))
	if routes, v := h.router.find(r.URL.Path); routes != nil {
		h.serveResource(w, r, routes, v)
		return
	}
	h.serveDocuments(w, r)
}

// deepen gives the goroutine at once the stack that a request needs. HTTP/2 starts a goroutine for each, with a small
// stack that would be moved to one of twice the size, several times, on the way down: a quarter of the front's own
// time for a GET. Together with what is in use room makes it 16 KiB, the largest stack that Go's runtime keeps ready.
//
//go:noinline
func deepen(i int) byte {
	var room [8 << 10]byte
	return room[i]
}

// recovered turns a panic into a 500 and a log line, so that one request cannot stop the others.
func (h *Handler) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if isAbort(v) {
		panic(v)
	}
	h.logPanic(r, v)
	h.writeError(w, r, apierrors.NewInternal(nil))
}

// isAbort says whether a panic is net/http's way to break a connection off.
func isAbort(v any) bool {
	err, ok := v.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// servePublic answers what needs no user: health checks and the version.
func (h *Handler) servePublic(w http.ResponseWriter, r *http.Request) bool {
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/api"):
		return false
	case path == "/version" || path == "/version/":
		return h.public(w, r, func() bool { h.serveBytes(w, r, "application/json", h.version); return true })
	case strings.HasPrefix(path, "/healthz"), strings.HasPrefix(path, "/livez"), strings.HasPrefix(path, "/readyz"):
		return h.public(w, r, func() bool { return h.health.serve(w, r) })
	default:
		return false
	}
}

// public answers a request of anybody.
func (h *Handler) public(w http.ResponseWriter, r *http.Request, serve func() bool) bool {
	if err := authn.Impersonates(nil, r.Header); err != nil {
		h.writeError(w, r, err)
		return true
	}
	gate.Anonymous(r.Context(), w.Header())
	h.recordUser(r.Context(), &authn.User{Name: authn.AnonymousName, Groups: []string{authn.UnauthenticatedGroup}})
	return serve()
}

// recordUser tells the audit whose request it is.
func (h *Handler) recordUser(ctx context.Context, u *authn.User) {
	if h.cfg.Audit != nil {
		audit.From(ctx).Received(u)
	}
}

// customKindsPath is where kubectl looks whether a kind is a custom one, before it creates an object of a kind that
// OpenAPI has no PATCH of (a Binding, a PlacementReview). There are none, and discovery does not have the path.
const customKindsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

const noCustomKinds = `{"kind":"CustomResourceDefinitionList","apiVersion":"apiextensions.k8s.io/v1",` +
	`"metadata":{"resourceVersion":"1"},"items":[]}` + "\n"

// serveDocuments answers requests for documents about the API.
func (h *Handler) serveDocuments(w http.ResponseWriter, r *http.Request) {
	if err := requireUser(r); err != nil {
		h.writeError(w, r, err)
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	var serve func()
	switch {
	case h.discovery.Has(path):
		serve = func() { h.discovery.Serve(w, r, path) }
	case h.openapi.Has(path):
		serve = func() { h.openapi.Serve(w, r, path) }
	case path == customKindsPath:
		serve = func() { h.serveBytes(w, r, "application/json", []byte(noCustomKinds)) }
	case path == openapi.V2Path:
		serve = func() { h.openapi.ServeV2(w, r) }
	case h.documentOf(path) != nil:
		if err := h.authorizePath(r, path); err != nil {
			h.writeError(w, r, err)
			return
		}
		serve = func() { h.documentOf(path).ServeHTTP(w, r) }
	case path == tokens.ConfigurationPath && h.cfg.OpenID != nil:
		serve = func() {
			body, err := h.cfg.OpenID.Configuration("https://" + r.Host)
			h.serveOpenID(w, r, "application/json", body, err)
		}
	case path == tokens.KeysPath && h.cfg.OpenID != nil:
		serve = func() {
			body, err := h.cfg.OpenID.Keys()
			h.serveOpenID(w, r, tokens.KeysType, body, err)
		}
	case path == "":
		serve = func() { h.serveIndex(w, r) }
	default:
		h.writeError(w, r, apierrors.New(apierrors.NotFound, "the server could not find the requested resource"))
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.notAllowed(w, r, "GET, HEAD")
		return
	}
	serve()
}

// serveOpenID answers with a document for those who verify tokens.
func (h *Handler) serveOpenID(w http.ResponseWriter, r *http.Request, contentType string, body []byte, err error) {
	if err != nil {
		h.writeError(w, r, err)
		return
	}
	h.serveBytes(w, r, contentType, body)
}

func (h *Handler) authorizePath(r *http.Request, path string) error {
	if h.cfg.AuthorizePath == nil {
		return apierrors.New(apierrors.Forbidden, "forbidden: nobody may get path %q", path)
	}
	return h.cfg.AuthorizePath(r.Context(), "get", path)
}

// documentOf returns what answers a path that is no resource; nil for none.
func (h *Handler) documentOf(path string) http.Handler {
	if d := h.cfg.Paths[path]; d != nil {
		return d
	}
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '/' {
			if d := h.cfg.Paths[path[:i+1]]; d != nil {
				return d
			}
		}
	}
	return h.cfg.Paths[path+"/"]
}

func (h *Handler) serveBytes(w http.ResponseWriter, r *http.Request, contentType string, body []byte) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.notAllowed(w, r, "GET, HEAD")
		return
	}
	w.Header().Set("Content-Type", contentType)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
