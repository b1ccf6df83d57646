package rest

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// health answers /healthz, /livez and /readyz, and each check below them, as Kubernetes does: "ok", or 500
// with one line per check. Why a check fails is logged; anybody may ask, so it is not sent.
type health struct {
	live, ready []Check
	logger      *slog.Logger
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
	failed := false
	for _, c := range checks {
		if slices.Contains(excluded, c.Name) {
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if err := c.Run(r.Context()); err != nil {
			failed = true
			h.logger.WarnContext(r.Context(), "health check failed", "endpoint", endpoint, "check", c.Name, "error", err)
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
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
