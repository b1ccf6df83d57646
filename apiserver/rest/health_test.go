package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
)

// However often anybody asks while a check fails, why is logged once, and again when it has passed meanwhile.
func TestHealthIsLoggedOnce(t *testing.T) {
	failing := map[string]error{"a": errors.New("starts"), "b": errors.New("starts")}
	check := func(name string) Check {
		return Check{Name: name, Run: func(context.Context) error { return failing[name] }}
	}
	var log strings.Builder
	h := &health{
		ready: []Check{check("a"), check("b")}, logger: slog.New(slog.NewTextHandler(&log, nil)),
		told: map[string]bool{}, passing: map[string]bool{},
	}
	ask := func(want int) {
		t.Helper()
		for range 20 {
			for _, path := range []string{"/readyz", "/readyz/b", "/readyz?exclude=a"} {
				h.serve(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
			}
		}
		if n := strings.Count(log.String(), "\n"); n != want {
			t.Errorf("%d lines, want %d:\n%s", n, want, &log)
		}
	}
	ask(1)
	if !strings.Contains(log.String(), "a: starts; b: starts") {
		t.Error(log.String())
	}
	failing["a"] = nil
	ask(1)
	failing["b"] = nil
	ask(1)
	failing["b"] = errors.New("has broken")
	ask(2)
}
