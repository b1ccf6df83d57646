package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// health answers /healthz, /livez and /readyz, and each check below them, as Kubernetes does: "ok", or 500
// with one line per check. Why checks fail is logged, once, and once more when a check that had passed fails; anybody
// may ask, so it is not sent.
type health struct {
	live, ready []Check
	logger      *slog.Logger
	result      func(endpoint, check string, err error) // nil for nobody

	mu sync.Mutex
	// told are the endpoints of which a failure was logged; passing are the checks that passed last time, each with its
	// endpoint.
	told, passing map[string]bool
}

// note notes how the checks went, and logs why some of them failed if that is new. Order is that of the checks.
func (h *health) note(ctx context.Context, endpoint string, order []string, results map[string]error) {
	h.mu.Lock()
	var failed []string
	news := !h.told[endpoint]
	for _, name := range order {
		key, err := endpoint+"/"+name, results[name]
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", name, err))
			news = news || h.passing[key]
		}
		h.passing[key] = err == nil
	}
	h.told[endpoint] = h.told[endpoint] || len(failed) > 0
	h.mu.Unlock()
	if news && len(failed) > 0 {
		h.logger.WarnContext(ctx, "health check failed", "endpoint", endpoint, "error", strings.Join(failed, "; "))
	}
}

// serve answers a health request; it returns false for paths that are none.
func (h *health) serve(w http.ResponseWriter, r *http.Request) bool {
	endpoint, name, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	checks := h.live
	switch endpoint {
	case "healthz", "livez":
	case "readyz":
		checks = h.ready
	default:
		return false
	}
	excluded := r.URL.Query()["exclude"]
	if name != "" {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 && name != "ping" {
			return false
		}
		if i >= 0 {
			checks = checks[i : i+1]
		} else {
			checks = nil
		}
		excluded = nil
	}
	h.run(w, r, endpoint, checks, excluded)
	return true
}

func (h *health) run(w http.ResponseWriter, r *http.Request, endpoint string, checks []Check, excluded []string) {
	var report strings.Builder
	report.WriteString("[+]ping ok\n")
	var order []string
	results := map[string]error{}
	failed := false
	for _, c := range checks {
		if slices.Contains(excluded, c.Name) {
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		err := c.Run(r.Context())
		order, results[c.Name] = append(order, c.Name), err
		if h.result != nil {
			h.result(endpoint, c.Name, err)
		}
		if err != nil {
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	h.note(r.Context(), endpoint, order, results)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	code, body := http.StatusOK, "ok"
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case failed:
		code, body = http.StatusInternalServerError, report.String()+endpoint+" check failed\n"
	case verbose:
		body = report.String() + endpoint + " check passed\n"
	}
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body))
	}
}
